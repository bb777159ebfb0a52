"""Train the network of the `swarm` demo by rules and by rewards, and write `swarm.onnx` and its model card.

    python -m assets.swarm.train_swarm

from the root of the repository. It needs the extras `train` and `test` (`pip install -e .[train,test]`), no
network and no GPU; about two minutes on one core. All fish of two seas share one network. First they learn to
do as `scripted` in `model_card.py` does, then, by proximal policy optimisation, from the rewards of
`reward.py`. Seeds are fixed: on the same machine with the same library versions the result is the same.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from assets.exporting import OPSET, export
from assets.swarm.model_card import measure_all, scripted, write_card
from assets.swarm.reward import reward
from demos.swarm.world import SENSES, Sea

HERE = Path(__file__).parent
SEED = 5
FISH, STEPS, ROUNDS = 512, 64, 80
SCHOOL = 0.5  # of the rounds, the first: there fish learn to do as the rules do, wherever they get themselves
SHARKS = (3, 4)  # in each sea
LIFE = 12  # rounds after which a sea begins anew: fish are to know young seas, as every game begins with one
EPOCHS, BATCH = 3, 4096
DISCOUNT, TRACE, CLIP = 0.985, 0.95, 0.2
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
        self.spread = nn.Parameter(torch.full((2,), -1.2))
        self.critic = nn.Sequential(
            nn.Linear(SENSES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1)
        )
        self.steers, self.foretells = [*self.policy.parameters(), self.spread], [*self.critic.parameters()]
        self.optimiser = torch.optim.Adam(self.steers + self.foretells, lr=1e-3)

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
                # Apart: a death surprises the critic so much that nothing would be left for the policy.
                for parameters in (self.steers, self.foretells):
                    nn.utils.clip_grad_norm_(parameters, 0.5)
                self.optimiser.step()

    def imitate(self, senses: Tensor, worth: Tensor) -> None:
        """One round of doing as the rules do, and of foretelling what that is worth."""
        rules = torch.from_numpy(scripted(senses.numpy()))
        for _ in range(EPOCHS):
            for rows in torch.randperm(len(senses)).split(BATCH):
                wrong = ((self.critic(senses[rows])[:, 0] - worth[rows]) ** 2).mean()
                apart = ((self.policy(senses[rows]) - rules[rows]) ** 2).mean()
                self.optimiser.zero_grad()
                (apart + 0.5 * wrong).backward()
                nn.utils.clip_grad_norm_(self.foretells, 0.5)
                self.optimiser.step()


def play(learner: Learner, seas: list[Sea]) -> tuple[list[Tensor], float, float]:
    """STEPS steps of all seas: senses, steering, likelihood, gain and worth of all fish, the mean reward a
    second, and how many were caught.
    """
    seen, done, rewards, worths, deaths = [], [], [], [], []
    noise = torch.exp(learner.spread)
    senses = [sea.observe() for sea in seas]
    for _ in range(STEPS):
        inputs = torch.from_numpy(np.concatenate(senses))
        mean = learner.policy(inputs)
        steering = mean + noise * torch.randn(mean.shape)
        parts = np.split(steering.numpy(), len(seas))
        caught = [sea.step(part, DT) for sea, part in zip(seas, parts, strict=True)]
        earned = [reward(*each, DT) for each in zip(seas, senses, caught, strict=True)]
        rewards.append(np.concatenate(earned))
        deaths.append(np.concatenate(caught))
        seen.append(inputs)
        done.append((steering, learner.likelihood(mean, steering)))
        worths.append(learner.critic(inputs)[:, 0].numpy())
        senses = [sea.observe() for sea in seas]
    worth = learner.critic(torch.from_numpy(np.concatenate(senses)))[:, 0].numpy()
    trace, gains = np.zeros_like(worth), []
    for earnings, value, died in zip(rewards[::-1], worths[::-1], deaths[::-1], strict=True):
        # Being caught ends a life: what the next fish will find is no merit of this one.
        lives = 1.0 - died.astype(np.float32)
        surprise = earnings + DISCOUNT * lives * worth - value
        trace = surprise + DISCOUNT * TRACE * lives * trace
        gains.append(trace)
        worth = value
    gain = torch.from_numpy(np.concatenate(gains[::-1]).astype(np.float32))
    target = gain + torch.from_numpy(np.concatenate(worths))
    gain = (gain - gain.mean()) / (gain.std() + 1e-6)
    steered = torch.cat([steering for steering, _ in done])
    before = torch.cat([likelihood for _, likelihood in done])
    experience = [torch.cat(seen), steered, before, gain, target]
    return experience, float(np.mean(rewards)) / DT, float(np.mean(deaths)) / DT


def train(rounds: int) -> Policy:
    """Let fish learn for `rounds` rounds, printing how they fare."""
    learner = Learner()
    rate = torch.optim.lr_scheduler.LinearLR(learner.optimiser, 1.0, 0.1, rounds)
    seas: list[Sea] = []
    fared = []
    for turn in range(rounds):
        # The seas begin anew by turns, so that there is always a young one and an old one.
        for i, sharks in enumerate(SHARKS):
            if turn == 0 or (turn + i * LIFE // len(SHARKS)) % LIFE == 0:
                seas[i : i + 1] = [Sea(FISH, np.random.default_rng((SEED, i, turn)), sharks)]
        with torch.no_grad():
            experience, *fares = play(learner, seas)
        if turn < SCHOOL * rounds:
            learner.imitate(experience[0], experience[-1])
        else:
            learner.improve(*experience)
        rate.step()
        fared.append(fares)
        if turn % 10 == 9:
            pleasure, deaths = np.mean(fared[-10:], axis=0)
            told = f"reward {pleasure:.3f} a second, caught {6000 * deaths:.1f} of 100 a minute"
            print(f"round {turn + 1} of {rounds}: {told}", flush=True)
    return learner.policy.eval()


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
    export(policy, (torch.zeros(2, SENSES),), path, ["senses"], ["steering"])
    scores = measure_all(path)
    write_card(
        folder / "README.md",
        scores,
        size=path.stat().st_size,
        opset=OPSET,
        samples=arguments.rounds * STEPS * FISH * len(SHARKS),
        life=LIFE * STEPS * DT,
        minutes=time.process_time() / 60,
    )
    for name, score in scores.items():
        print(f"{name}: {score}")
    print(f"{time.process_time():.0f} s of one core, {time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main()
