"""Small networks of the package transformers, for export."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers

from tests.field.sources.architectures import Architecture, Sizes, Tensors, images, waves


def tokens(
    name: str,
    make: Callable[[], torch.nn.Module],
    *,
    with_mask: bool = True,
    outputs: int = 1,
    decoder: bool = False,
    **options: Any,
) -> Architecture:
    """A network over text."""
    names = [
        "input_ids",
        *(["attention_mask"] if with_mask else []),
        *(["decoder_input_ids"] if decoder else []),
    ]

    def inputs(rng: np.random.Generator, sizes: Sizes) -> Tensors:
        shape = (sizes["batch"], sizes["length"])
        made = {"input_ids": torch.from_numpy(rng.integers(3, 99, shape))}
        if with_mask:
            made["attention_mask"] = torch.ones(shape, dtype=torch.int64)
        if decoder:
            made["decoder_input_ids"] = torch.from_numpy(
                rng.integers(3, 99, (sizes["batch"], sizes["target"]))
            )
        return made

    axes = {n: {0: "batch", 1: "target" if n.startswith("decoder") else "length"} for n in names}
    all_sizes = [{"batch": b, "length": n, "target": t} for b, n, t in ((2, 12, 5), (1, 7, 3), (3, 30, 9))]
    return Architecture(name, make, inputs, axes, all_sizes, outputs, options)


def of_class(name: str, config: str | None = None, **values: Any) -> Callable[[], torch.nn.Module]:
    """A class of transformers, made from its configuration with some values."""

    def make() -> torch.nn.Module:
        model = getattr(transformers, name)
        made = getattr(transformers, config)(**values) if config else model.config_class(**values)
        return model(made)

    return make


SMALL: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}


CAUSAL: dict[str, Any] = {
    **SMALL,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "use_cache": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


PICTURE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}


PIXELS: dict[str, Any] = {"argument": "pixel_values"}


FIXED: dict[str, Any] = {**PIXELS, "is_side_open": False}


WAVE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "conv_dim": (16, 16, 16),
    "conv_stride": (5, 2, 2),
    "conv_kernel": (10, 3, 3),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "vocab_size": 32,
}


def transformer_networks() -> list[Architecture]:
    return [
        tokens("bert", of_class("BertModel", **SMALL)),
        tokens(
            "distilbert",
            of_class(
                "DistilBertForSequenceClassification",
                vocab_size=100,
                dim=32,
                n_layers=2,
                n_heads=4,
                hidden_dim=64,
            ),
        ),
        tokens("roberta", of_class("RobertaModel", **SMALL)),
        tokens("albert", of_class("AlbertModel", embedding_size=16, **SMALL)),
        tokens("electra", of_class("ElectraForTokenClassification", embedding_size=16, **SMALL)),
        tokens(
            "deberta",
            of_class("DebertaV2Model", relative_attention=True, pos_att_type=["p2c", "c2p"], **SMALL),
        ),
        tokens("mpnet", of_class("MPNetModel", **SMALL)),
        tokens(
            "mobilebert",
            of_class(
                "MobileBertModel",
                embedding_size=16,
                true_hidden_size=32,
                intra_bottleneck_size=32,
                **{**SMALL, "hidden_size": 64},
            ),
        ),
        tokens(
            "modernbert",
            of_class(
                "ModernBertModel",
                pad_token_id=0,
                bos_token_id=1,
                eos_token_id=2,
                cls_token_id=1,
                sep_token_id=2,
                **SMALL,
            ),
        ),
        tokens(
            "gpt2",
            of_class("GPT2LMHeadModel", vocab_size=100, n_embd=32, n_layer=2, n_head=4, use_cache=False),
        ),
        tokens(
            "gpt_neox",
            of_class("GPTNeoXForCausalLM", **{k: v for k, v in CAUSAL.items() if k != "num_key_value_heads"}),
        ),
        tokens("llama", of_class("LlamaForCausalLM", **CAUSAL)),
        tokens("mistral", of_class("MistralForCausalLM", **CAUSAL)),
        tokens("qwen2", of_class("Qwen2ForCausalLM", **CAUSAL)),
        tokens("qwen3", of_class("Qwen3ForCausalLM", head_dim=8, **CAUSAL)),
        tokens("gemma2", of_class("Gemma2ForCausalLM", head_dim=8, **CAUSAL)),
        tokens("phi", of_class("PhiForCausalLM", **CAUSAL)),
        tokens(
            "mamba",
            of_class(
                "MambaForCausalLM",
                vocab_size=100,
                hidden_size=32,
                state_size=4,
                num_hidden_layers=2,
                use_cache=False,
            ),
            with_mask=False,
        ),
        tokens(
            "t5",
            of_class(
                "T5ForConditionalGeneration",
                vocab_size=100,
                d_model=32,
                d_kv=8,
                d_ff=64,
                num_layers=2,
                num_heads=4,
                use_cache=False,
            ),
            decoder=True,
        ),
        tokens(
            "bart",
            of_class(
                "BartForConditionalGeneration",
                vocab_size=100,
                d_model=32,
                encoder_layers=2,
                decoder_layers=2,
                encoder_attention_heads=4,
                decoder_attention_heads=4,
                encoder_ffn_dim=64,
                decoder_ffn_dim=64,
                use_cache=False,
            ),
            decoder=True,
        ),
        waves(
            "whisper_encoder",
            lambda: (
                transformers.WhisperModel(
                    transformers.WhisperConfig(
                        vocab_size=100,
                        d_model=32,
                        encoder_layers=2,
                        decoder_layers=2,
                        encoder_attention_heads=4,
                        decoder_attention_heads=4,
                        encoder_ffn_dim=64,
                        decoder_ffn_dim=64,
                        num_mel_bins=16,
                        max_source_positions=50,
                        pad_token_id=0,
                        bos_token_id=1,
                        eos_token_id=2,
                        decoder_start_token_id=1,
                    )
                ).encoder
            ),
            argument="input_features",
            shape=(16,),
            length=100,
        ),
        images("vit", of_class("ViTForImageClassification", **PICTURE), side=32, **FIXED),
        images("deit", of_class("DeiTModel", **PICTURE), side=32, **FIXED),
        images("clip_vision", of_class("CLIPVisionModel", **PICTURE), side=32, **FIXED),
        tokens(
            "clip_text",
            of_class(
                "CLIPTextModel",
                max_position_embeddings=32,
                eos_token_id=2,
                bos_token_id=1,
                pad_token_id=0,
                **SMALL,
            ),
        ),
        images(
            "dinov2",
            of_class("Dinov2Model", **{k: v for k, v in PICTURE.items() if k != "intermediate_size"}),
            side=32,
            **FIXED,
        ),
        images(
            "yolos",
            of_class(
                "YolosForObjectDetection", num_detection_tokens=7, **{**PICTURE, "image_size": (32, 32)}
            ),
            side=32,
            outputs=2,
            **FIXED,
        ),
        images(
            "detr",
            lambda: transformers.DetrForObjectDetection(
                transformers.DetrConfig(
                    backbone_config=transformers.ResNetConfig(
                        embedding_size=8,
                        hidden_sizes=[8, 16],
                        depths=[1, 1],
                        layer_type="basic",
                        out_features=["stage2"],
                    ),
                    use_timm_backbone=False,
                    use_pretrained_backbone=False,
                    backbone=None,
                    d_model=32,
                    encoder_layers=1,
                    decoder_layers=1,
                    encoder_attention_heads=4,
                    decoder_attention_heads=4,
                    encoder_ffn_dim=64,
                    decoder_ffn_dim=64,
                    num_queries=6,
                )
            ),
            outputs=2,
            **PIXELS,
        ),
        images(
            "segformer",
            of_class(
                "SegformerForSemanticSegmentation",
                hidden_sizes=[16, 16, 32, 32],
                depths=[1, 1, 1, 1],
                num_attention_heads=[1, 2, 2, 4],
                decoder_hidden_size=32,
            ),
            **PIXELS,
        ),
        images(
            "glpn",
            of_class(
                "GLPNForDepthEstimation",
                hidden_sizes=[16, 16, 32, 32],
                depths=[1, 1, 1, 1],
                num_attention_heads=[1, 2, 2, 4],
                decoder_hidden_size=16,
            ),
            **PIXELS,
        ),
        images(
            "cvt",
            of_class("CvtModel", embed_dim=[16, 16, 32], num_heads=[1, 2, 4], depth=[1, 2, 3]),
            **PIXELS,
        ),
        images(
            "swinv2",
            of_class(
                "Swinv2Model",
                image_size=32,
                patch_size=4,
                embed_dim=16,
                depths=[2, 2],
                num_heads=[2, 4],
                window_size=4,
            ),
            side=32,
            **FIXED,
        ),
        images(
            "dpt",
            of_class(
                "DPTForDepthEstimation",
                backbone_out_indices=[0, 1, 2, 3],
                neck_hidden_sizes=[8, 8, 8, 8],
                fusion_hidden_size=8,
                **{**PICTURE, "num_hidden_layers": 4},
            ),
            side=32,
            **FIXED,
        ),
        images(
            "mobilevit",
            of_class(
                "MobileViTModel",
                image_size=64,
                hidden_sizes=[16, 24, 32],
                neck_hidden_sizes=[8, 8, 16, 16, 24, 24, 32],
                num_attention_heads=4,
            ),
            **PIXELS,
        ),
        images(
            "convnextv2",
            of_class("ConvNextV2Model", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1]),
            **PIXELS,
        ),
        images(
            "poolformer",
            of_class("PoolFormerModel", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1]),
            **PIXELS,
        ),
        images(
            "levit",
            of_class(
                "LevitModel",
                image_size=64,
                hidden_sizes=[32, 48, 64],
                key_dim=[8, 8, 8],
                num_attention_heads=[2, 3, 4],
                depths=[1, 1, 1],
            ),
            **FIXED,
        ),
        waves("wav2vec2", of_class("Wav2Vec2ForCTC", **WAVE)),
        waves("hubert", of_class("HubertModel", **WAVE)),
        waves("encodec", lambda: _Encodec(), shape=(1,), length=3200, argument="x"),
    ]


class _Encodec(torch.nn.Module):
    """EnCodec's encoder and decoder, without the codes between."""

    def __init__(self) -> None:
        super().__init__()
        model = transformers.EncodecModel(
            transformers.EncodecConfig(num_filters=8, hidden_size=16, codebook_dim=16)
        )
        self.encoder, self.decoder = model.encoder, model.decoder

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Sound in, sound out."""
        return self.decoder(self.encoder(x))
