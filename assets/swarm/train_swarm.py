"""Train the network of the `swarm` demo by reinforcement learning, and write `swarm.onnx` and its model card.

    python -m assets.swarm.train_swarm

from the root of the repository. It needs the extras `train` and `test` (`pip install -e .[train,test]`), no
network and no GPU; about two minutes on one core. Proximal policy optimisation: all fish of two seas share
one network, and learn from the rewards of `demos.swarm.world`. Seeds are fixed: on the same machine with the
same library versions the result is the same.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from assets.swarm.model_card import OPSET, measure_all, write_card
from demos.swarm.world import SENSES, Floats, Sea

HERE = Path(__file__).parent
SEED = 5
FISH, SEAS, STEPS, ROUNDS = 512, 2, 64, 100
EPOCHS, BATCH = 3, 4096
DISCOUNT, TRACE, CLIP = 0.97, 0.92, 0.2
DT = 1 / 30
HIDDEN = 32


class Policy(nn.Module):
    """(n, SENSES) -> (n, 2) from -1 to 1: turn, and push."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(SENSES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2)
        )
        with torch.no_grad():
            self.layers[-1].weight.mul_(0.1)

    def forward(self, senses: Tensor) -> Tensor:
        return torch.tanh(self.layers(senses))


class Learner:
    """The policy with what only training needs: its spread, and a critic that foretells the rewards."""

    def __init__(self) -> None:
        self.policy = Policy()
        self.spread = nn.Parameter(torch.full((2,), -0.7))
        self.critic = nn.Sequential(
            nn.Linear(SENSES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1)
        )
        self.parameters = [*self.policy.parameters(), self.spread, *self.critic.parameters()]
        self.optimiser = torch.optim.Adam(self.parameters, lr=1e-3)

    def likelihood(self, mean: Tensor, steering: Tensor) -> Tensor:
        """Of each steering (n, 2), as a logarithm (n,)."""
        return (-((steering - mean) ** 2) / (2 * torch.exp(2 * self.spread)) - self.spread).sum(-1)

    def improve(self, senses: Tensor, steering: Tensor, before: Tensor, gain: Tensor, worth: Tensor) -> None:
        """One round of PPO on n experiences."""
        for _ in range(EPOCHS):
            for rows in torch.randperm(len(senses)).split(BATCH):
                ratio = torch.exp(self.likelihood(self.policy(senses[rows]), steering[rows]) - before[rows])
                kept = ratio.clamp(1 - CLIP, 1 + CLIP)
                better = torch.minimum(ratio * gain[rows], kept * gain[rows]).mean()
                wrong = ((self.critic(senses[rows])[:, 0] - worth[rows]) ** 2).mean()
                loss = -better + 0.5 * wrong - 0.002 * self.spread.sum()
                self.optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.parameters, 0.5)
                self.optimiser.step()


def play(learner: Learner, seas: list[Sea], senses: Floats) -> tuple[list[Tensor], Floats, float]:
    """STEPS steps of all seas: senses, steering, likelihood, gain and worth of all fish, what they sense now,
    and the mean reward a second.
    """
    seen, done, rewards, worths = [], [], [], []
    noise = torch.exp(learner.spread)
    for _ in range(STEPS):
        inputs = torch.from_numpy(senses)
        mean = learner.policy(inputs)
        steering = mean + noise * torch.randn(mean.shape)
        parts = np.split(steering.numpy(), len(seas))
        rewards.append(np.concatenate([sea.step(part, DT) for sea, part in zip(seas, parts, strict=True)]))
        seen.append(inputs)
        done.append((steering, learner.likelihood(mean, steering)))
        worths.append(learner.critic(inputs)[:, 0].numpy())
        senses = np.concatenate([sea.observe() for sea in seas])
    worth = learner.critic(torch.from_numpy(senses))[:, 0].numpy()
    trace, gains = np.zeros_like(worth), []
    for reward, value in zip(reversed(rewards), reversed(worths), strict=True):
        # Being caught ends a life: what the next fish will find is no merit of this one.
        lives = (reward > -1.0).astype(np.float32)
        surprise = reward + DISCOUNT * lives * worth - value
        trace = surprise + DISCOUNT * TRACE * lives * trace
        gains.append(trace)
        worth = value
    gain = torch.from_numpy(np.concatenate(gains[::-1]).astype(np.float32))
    target = gain + torch.from_numpy(np.concatenate(worths))
    gain = (gain - gain.mean()) / (gain.std() + 1e-6)
    steered = torch.cat([steering for steering, _ in done])
    before = torch.cat([likelihood for _, likelihood in done])
    return [torch.cat(seen), steered, before, gain, target], senses, float(np.mean(rewards)) / DT


def train(rounds: int) -> Policy:
    """Let fish learn for `rounds` rounds, printing the reward."""
    learner = Learner()
    rate = torch.optim.lr_scheduler.LinearLR(learner.optimiser, 1.0, 0.1, rounds)
    seas = [Sea(FISH, np.random.default_rng(SEED + i), sharks=3 + i) for i in range(SEAS)]
    senses = np.concatenate([sea.observe() for sea in seas])
    for turn in range(rounds):
        with torch.no_grad():
            experience, senses, reward = play(learner, seas, senses)
        learner.improve(*experience)
        rate.step()
        if turn % 10 == 9:
            print(f"round {turn + 1} of {rounds}: reward {reward:.3f} a second", flush=True)
    return learner.policy.eval()


def export(policy: Policy, path: Path) -> None:
    """Write the policy as ONNX, built node by node: five layers need no exporter."""
    nodes, weights, value = [], [], "senses"
    layers = [layer for layer in policy.layers if isinstance(layer, nn.Linear)]
    for i, layer in enumerate(layers):
        weights.append(onnx.numpy_helper.from_array(layer.weight.detach().numpy().copy(), f"weight_{i}"))
        weights.append(onnx.numpy_helper.from_array(layer.bias.detach().numpy().copy(), f"bias_{i}"))
        names = [value, f"weight_{i}", f"bias_{i}"]
        nodes.append(onnx.helper.make_node("Gemm", names, [f"sum_{i}"], f"layer_{i}", transB=1))
        kind, value = ("Tanh", "steering") if layer is layers[-1] else ("Relu", f"hidden_{i}")
        nodes.append(onnx.helper.make_node(kind, [f"sum_{i}"], [value], f"activation_{i}"))
    kinds = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ("batch", width))
        for name, width in (("senses", SENSES), ("steering", 2))
    ]
    graph = onnx.helper.make_graph(nodes, "swarm", kinds[:1], kinds[1:], weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    onnx.save_model(model, path)


def main() -> None:
    """Train, export, measure the exported file and write the card."""
    parser = argparse.ArgumentParser(description="Train the swarm's network; write swarm.onnx and README.md.")
    parser.add_argument("--output", type=Path, default=HERE, help="folder (default: beside the script)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="fewer for a quick try")
    arguments = parser.parse_args()
    folder: Path = arguments.output
    folder.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    torch.set_num_threads(1)  # batches are small
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)
    policy = train(arguments.rounds)
    path = folder / "swarm.onnx"
    export(policy, path)
    scores = measure_all(path)
    write_card(folder / "README.md", scores, path.stat().st_size, arguments.rounds * STEPS * FISH * SEAS)
    for name, score in scores.items():
        print(f"{name}: {score}")
    print(f"{time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main()
