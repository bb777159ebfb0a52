"""Architectures with random weights at toy size, as PyTorch modules, each with inputs of several sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.field.sources.architectures import Architecture, Sizes, Tensors, images, waves
from tests.images import smooth

# torchvision declares shapes for operators that it has only beside the build of torch it was made for.
_NAMES = torch.library.Library("torchvision", "DEF")
for _name in (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
):
    _NAMES.define(_name)

import diffusers  # noqa: E402 - these import torchvision
import timm  # noqa: E402
import torchvision  # noqa: E402

from tests.field.sources.exported_transformers import transformer_networks  # noqa: E402


def series(
    name: str, make: Callable[[], torch.nn.Module], *, width: int = 8, outputs: int = 1
) -> Architecture:
    """A network over a series of vectors."""

    def inputs(rng: np.random.Generator, sizes: Sizes) -> Tensors:
        return {
            "x": torch.from_numpy(
                rng.normal(size=(sizes["batch"], sizes["length"], width)).astype(np.float32)
            )
        }

    sizes = [{"batch": b, "length": n} for b, n in ((2, 10), (1, 10), (3, 21))]
    return Architecture(name, make, inputs, {"x": {0: "batch", 1: "length"}}, sizes, outputs)


class First(torch.nn.Module):
    """A recurrent layer of which only the sequence is used."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The layer's first output."""
        return self.layer(x)[0]


tv = torchvision.models


class _Decoded(torch.nn.Module):
    """The decoder of an autoencoder."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Latents in, image out."""
        return self.model.decode(x).sample


class _Encoded(torch.nn.Module):
    """The encoder of an autoencoder."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Image in, latents out."""
        return self.model.encode(x).latent_dist.mean


def _autoencoder() -> torch.nn.Module:
    return diffusers.AutoencoderKL(
        block_out_channels=(8, 16),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        norm_num_groups=4,
        latent_channels=4,
    )


def _diffusion() -> list[Architecture]:
    def unet_inputs(rng: np.random.Generator, sizes: Sizes) -> Tensors:
        batch, side = sizes["batch"], sizes["side"]
        return {
            "sample": torch.from_numpy(rng.normal(size=(batch, 4, side, side)).astype(np.float32)),
            "timestep": torch.tensor([7] * batch),
            "encoder_hidden_states": torch.from_numpy(rng.normal(size=(batch, 5, 16)).astype(np.float32)),
        }

    def transformer_inputs(rng: np.random.Generator, sizes: Sizes) -> Tensors:
        return {
            "hidden_states": torch.from_numpy(rng.normal(size=(sizes["batch"], 4, 8, 8)).astype(np.float32)),
            "timestep": torch.tensor([7] * sizes["batch"]),
            "class_labels": torch.tensor([1] * sizes["batch"]),
        }

    unet_axes = {
        "sample": {0: "batch", 2: "side", 3: "side"},
        "timestep": {0: "batch"},
        "encoder_hidden_states": {0: "batch"},
    }
    by_batch = {name: {0: "batch"} for name in ("hidden_states", "timestep", "class_labels")}
    return [
        Architecture(
            "unet",
            lambda: diffusers.UNet2DConditionModel(
                sample_size=16,
                block_out_channels=(8, 16),
                layers_per_block=1,
                cross_attention_dim=16,
                down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                attention_head_dim=4,
                up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
                norm_num_groups=4,
            ),
            unet_inputs,
            unet_axes,
            [{"batch": 2, "side": 16}, {"batch": 1, "side": 16}, {"batch": 1, "side": 24}],
        ),
        Architecture(
            "dit",
            lambda: diffusers.DiTTransformer2DModel(
                num_attention_heads=2,
                attention_head_dim=8,
                in_channels=4,
                out_channels=4,
                num_layers=2,
                norm_num_groups=4,
                sample_size=8,
                patch_size=2,
                num_embeds_ada_norm=10,
            ),
            transformer_inputs,
            by_batch,
            [{"batch": 2}, {"batch": 1}],
        ),
        images("vae_encoder", lambda: _Encoded(_autoencoder()), side=32),
        images("vae_decoder", lambda: _Decoded(_autoencoder()), side=16, channels=4),
    ]


def _vision() -> list[Architecture]:
    def of_timm(name: str, **values: Any) -> Callable[[], torch.nn.Module]:
        return lambda: timm.create_model(name, pretrained=False, num_classes=10, **values)

    return [
        images("resnet18", lambda: tv.resnet18(num_classes=10)),
        images("mobilenet_v3", lambda: tv.mobilenet_v3_small(num_classes=10)),
        images("efficientnet", lambda: tv.efficientnet_b0(num_classes=10)),
        images("shufflenet", lambda: tv.shufflenet_v2_x0_5(num_classes=10)),
        images("squeezenet", lambda: tv.squeezenet1_1(num_classes=10)),
        images("densenet", lambda: tv.DenseNet(8, (2, 2, 2), 16, num_classes=10)),
        images("regnet", lambda: tv.regnet_y_400mf(num_classes=10)),
        images(
            "convnext",
            lambda: tv.ConvNeXt(
                [tv.convnext.CNBlockConfig(16, 32, 1), tv.convnext.CNBlockConfig(32, None, 1)], num_classes=10
            ),
        ),
        images("swin", lambda: tv.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=10)),
        images(
            "vision_transformer",
            lambda: tv.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=10),
            side=32,
            is_side_open=False,
        ),
        images(
            "lraspp",
            lambda: tv.segmentation.lraspp_mobilenet_v3_large(
                weights=None, weights_backbone=None, num_classes=5
            ),
        ),
        images(
            "deeplab",
            lambda: tv.segmentation.deeplabv3_mobilenet_v3_large(
                weights=None, weights_backbone=None, num_classes=5
            ),
        ),
        images("mobilenet_v4", of_timm("mobilenetv4_conv_small_050")),
        images("ghostnet", of_timm("ghostnet_050")),
        images("mixer", of_timm("mixer_s32_224", img_size=64), is_side_open=False),
        images("edgenext", of_timm("edgenext_xx_small")),
        images("mobileone", of_timm("mobileone_s0")),
        images("fastvit", of_timm("fastvit_t8")),
        images("efficientformer", of_timm("efficientformerv2_s0", img_size=64), is_side_open=False),
    ]


def _plain() -> list[Architecture]:
    def policy_inputs(rng: np.random.Generator, sizes: Sizes) -> Tensors:
        return {"x": torch.from_numpy(rng.normal(size=(sizes["batch"], 8)).astype(np.float32))}

    return [
        series("lstm", lambda: First(torch.nn.LSTM(8, 12, 2, batch_first=True, bidirectional=True))),
        series("lstm_states", lambda: torch.nn.LSTM(8, 12, batch_first=True), outputs=3),
        series("gru", lambda: First(torch.nn.GRU(8, 12, 2, batch_first=True))),
        series("rnn", lambda: First(torch.nn.RNN(8, 12, batch_first=True, bidirectional=True))),
        series(
            "transformer_encoder",
            lambda: torch.nn.TransformerEncoder(
                torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2
            ),
        ),
        series("attention", lambda: _Attention()),
        waves("mel", lambda: _Mel(), argument="x"),
        waves("conv_tasnet", _Separator, argument="x", shape=(1,)),
        Architecture(
            "mlp",
            lambda: torch.nn.Sequential(
                torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 3)
            ),
            policy_inputs,
            {"x": {0: "batch"}},
            [{"batch": 4}, {"batch": 1}, {"batch": 33}],
        ),
    ]


class _Attention(torch.nn.Module):
    """Attention of a series to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The attended series."""
        return self.layer(x, x, x, need_weights=False)[0]


class _Mel(torch.nn.Module):
    """The logarithm of a filter bank's energies, as feature extractors compute it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(400))
        self.register_buffer("bank", torch.rand(20, 201))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, samples) to (batch, 20, frames)."""
        spectrum = torch.stft(
            x, 400, 160, window=self.window, center=False, return_complex=False, onesided=True
        )
        return torch.log(self.bank @ spectrum.square().sum(-1) + 1e-6)


class _Separator(torch.nn.Module):
    """Conv-TasNet: an encoder, dilated convolutions that make two masks, a decoder."""

    def __init__(self, width: int = 16, hidden: int = 24, voices: int = 2) -> None:
        super().__init__()
        self.voices = voices
        self.encoder = torch.nn.Conv1d(1, width, 16, stride=8, bias=False)
        self.decoder = torch.nn.ConvTranspose1d(width, 1, 16, stride=8, bias=False)
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(
                torch.nn.Conv1d(width, hidden, 1),
                torch.nn.PReLU(),
                torch.nn.GroupNorm(1, hidden),
                torch.nn.Conv1d(hidden, hidden, 3, padding=2**n, dilation=2**n, groups=hidden),
                torch.nn.PReLU(),
                torch.nn.GroupNorm(1, hidden),
                torch.nn.Conv1d(hidden, width, 1),
            )
            for n in range(4)
        )
        self.mask = torch.nn.Conv1d(width, voices * width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, 1, samples) to (batch, voices, samples)."""
        coded = self.encoder(x)
        y = coded
        for block in self.blocks:
            y = y + block(y)
        masks = torch.sigmoid(self.mask(y)).unflatten(1, (self.voices, -1))
        parts = (masks * coded.unsqueeze(1)).flatten(0, 1)
        return self.decoder(parts).unflatten(0, (-1, self.voices)).squeeze(2)


def _policies() -> list[Architecture]:
    import gymnasium
    from sb3_contrib import RecurrentPPO
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    box, discrete, mapping = gymnasium.spaces.Box, gymnasium.spaces.Discrete, gymnasium.spaces.Dict

    class Still(gymnasium.Env):
        """An environment of which only the spaces matter."""

        def __init__(self, observation: Any, action: Any) -> None:
            self.observation_space, self.action_space = observation, action

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return self.observation_space.sample(), {}

        def step(self, action: Any) -> Any:
            return self.observation_space.sample(), 0.0, False, False, {}

    vector = box(-1, 1, (8,), np.float32)
    screen = box(0, 255, (3, 64, 64), np.uint8)
    several = mapping({"screen": screen, "speed": box(-1, 1, (4,), np.float32)})

    class Policy(torch.nn.Module):
        """Actions, values and the logarithm of the actions' probability, with the normaliser before them."""

        def __init__(self, kind: str, space: Any, action: Any) -> None:
            super().__init__()
            env = VecNormalize(
                DummyVecEnv([lambda: Still(space, action)]),
                norm_obs_keys=["speed"] if space is several else None,
                norm_obs=space is not screen,
            )
            for _ in range(20):
                env.reset()
            self.policy = PPO(kind, env, n_steps=8, batch_size=8, device="cpu").policy.eval()
            self.statistics: Any = env.obs_rms if space is not screen else None

        def _normal(self, x: torch.Tensor, of: Any) -> torch.Tensor:
            mean, variance = (torch.tensor(v, dtype=torch.float32) for v in (of.mean, of.var))
            return torch.clamp((x - mean) / torch.sqrt(variance + 1e-8), -10, 10)

        def forward(self, x: torch.Tensor, speed: torch.Tensor | None = None) -> Any:
            if speed is not None:
                seen: Any = {"screen": x, "speed": self._normal(speed, self.statistics["speed"])}
            else:
                seen = x if self.statistics is None else self._normal(x, self.statistics)
            return self.policy(seen, deterministic=True)

    class Remembering(torch.nn.Module):
        """A policy with an LSTM, its states in and out."""

        def __init__(self) -> None:
            super().__init__()
            env = DummyVecEnv([lambda: Still(vector, discrete(3))])
            made = RecurrentPPO(
                "MlpLstmPolicy",
                env,
                n_steps=8,
                batch_size=8,
                device="cpu",
                policy_kwargs={"lstm_hidden_size": 16},
            )
            self.policy = made.policy.eval()

        def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> Any:
            policy = self.policy
            y, (h, c) = policy.lstm_actor(x.unsqueeze(0), (h, c))
            return policy.action_net(policy.mlp_extractor.forward_actor(y.squeeze(0))), h, c

    def vectors(rng: np.random.Generator, sizes: Sizes) -> Tensors:
        return {"x": torch.from_numpy(rng.uniform(-1, 1, (sizes["batch"], 8)).astype(np.float32))}

    def screens(rng: np.random.Generator, sizes: Sizes) -> Tensors:
        return {"x": torch.from_numpy(smooth((sizes["batch"], 3, 64, 64), 1, 0, 255))}

    def both(rng: np.random.Generator, sizes: Sizes) -> Tensors:
        speed = rng.uniform(-1, 1, (sizes["batch"], 4)).astype(np.float32)
        return {**screens(rng, sizes), "speed": torch.from_numpy(speed)}

    def remembered(rng: np.random.Generator, sizes: Sizes) -> Tensors:
        states = {
            n: torch.from_numpy(rng.normal(size=(1, sizes["batch"], 16)).astype(np.float32)) for n in "hc"
        }
        return {**vectors(rng, sizes), **states}

    batches = [{"batch": 2}, {"batch": 1}, {"batch": 9}]
    one = {"x": {0: "batch"}}
    return [
        Architecture(
            "policy_mlp", lambda: Policy("MlpPolicy", vector, box(-1, 1, (2,))), vectors, one, batches, 3
        ),
        Architecture(
            "policy_mlp_discrete", lambda: Policy("MlpPolicy", vector, discrete(4)), vectors, one, batches, 3
        ),
        Architecture(
            "policy_cnn", lambda: Policy("CnnPolicy", screen, discrete(5)), screens, one, batches, 3
        ),
        Architecture(
            "policy_multi_input",
            lambda: Policy("MultiInputPolicy", several, discrete(5)),
            both,
            {**one, "speed": {0: "batch"}},
            batches,
            3,
        ),
        Architecture(
            "policy_lstm", Remembering, remembered, {**one, "h": {1: "batch"}, "c": {1: "batch"}}, batches, 3
        ),
    ]


def architectures() -> list[Architecture]:
    """All of them."""
    return [*_plain(), *_vision(), *transformer_networks(), *_diffusion(), *_policies()]
