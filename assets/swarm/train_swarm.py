"""Train the network of the `swarm` demo by rules and by rewards, and write `swarm.onnx` and its model card.

    python -m assets.swarm.train_swarm

from the root of the repository. It needs the extras `train` and `test` (`pip install -e .[train,test]`), no
network and no GPU; about six minutes on one core. All fish of two seas share one network. First they learn
to do as `scripted` in `model_card.py` does when it is a little more timid, then, by proximal policy
optimisation, from the rewards of `reward.py`; of what that tries, the best is kept. Seeds are fixed: on the
same machine with the same library versions the result is the same.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections import deque
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from assets.exporting import OPSET, export
from assets.swarm.model_card import SHARK_NEAR, Score, mean_score, measure, measure_all, scripted, write_card
from assets.swarm.reward import reward
from demos.swarm.world import SENSES, Sea

HERE = Path(__file__).parent
SEED = 5
FISH, STEPS, ROUNDS = 512, 64, 240
SCHOOL = 200 / 240  # of the rounds, the first: there fish do as the rules would, wherever they get themselves
TIMID = 0.27  # how near a shark is, at most 1, when the rules that they learn begin to flee
SHARKS = (3, 4)  # in each sea
LIFE = 12  # rounds after which a sea begins anew: fish are to know young seas, as every game begins with one
REMEMBERED = 12  # rounds, from which the school takes its examples
LESSONS, LESSON = 60, 1024  # batches of the school a round, and examples in one
NEAR, STRESS = 0.15, 5.0  # examples with a shark nearer than this count so much more: there lives are lost
EPOCHS, BATCH = 3, 4096
DISCOUNT, TRACE, CLIP = 0.985, 0.95, 0.2
QUICKEST, CALM = 4e-3, 2e-4  # rates of learning: the school's highest, and that of the rewards' beginning
BOLD, SURE = -1.8, -3.0  # logarithms of the spread of what is tried, at the beginning and at the end
TRIALS, TRIAL_SECONDS = 10, 30  # rounds from one trial to the next, and how long one is
TRIAL_SEEDS = range(51, 57)  # neither training nor the card uses them
DT = 1 / 30
HIDDEN = 64


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
        self.spread = BOLD
        self.critic = nn.Sequential(
            nn.Linear(SENSES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1)
        )
        self.steers = torch.optim.Adam(self.policy.parameters(), QUICKEST)
        self.foretells = torch.optim.Adam(self.critic.parameters(), 1e-3)

    def likelihood(self, mean: Tensor, steering: Tensor) -> Tensor:
        """Of each steering (n, 2), as a logarithm (n,)."""
        return (-((steering - mean) ** 2) / (2 * np.exp(2 * self.spread))).sum(-1)

    def improve(self, senses: Tensor, steering: Tensor, before: Tensor, gain: Tensor, worth: Tensor) -> None:
        """One round of PPO on n experiences."""
        for _ in range(EPOCHS):
            for rows in torch.randperm(len(senses)).split(BATCH):
                ratio = torch.exp(self.likelihood(self.policy(senses[rows]), steering[rows]) - before[rows])
                kept = ratio.clamp(1 - CLIP, 1 + CLIP)
                better = torch.minimum(ratio * gain[rows], kept * gain[rows]).mean()
                descend(self.steers, -better)
        self.foresee(senses, worth)

    def foresee(self, senses: Tensor, worth: Tensor) -> None:
        """One round of foretelling what comes of n moments."""
        for _ in range(EPOCHS):
            for rows in torch.randperm(len(senses)).split(BATCH):
                wrong = (self.critic(senses[rows])[:, 0] - worth[rows]) ** 2
                descend(self.foretells, wrong.mean())

    def imitate(self, senses: Tensor) -> None:
        """One round of doing as the rules do."""
        rules = torch.from_numpy(scripted(senses.numpy(), TIMID))
        counts = 1.0 + STRESS * (senses[:, SHARK_NEAR] > NEAR)
        for rows in torch.randint(len(senses), (LESSONS, LESSON)):
            # Not squares: they would blur the edges of the rules, where a fish begins to flee or turns about.
            apart = nn.functional.smooth_l1_loss(
                self.policy(senses[rows]), rules[rows], beta=0.1, reduction="none"
            )
            descend(self.steers, (apart.sum(-1) * counts[rows]).mean(), 5.0)


def descend(optimiser: torch.optim.Optimizer, loss: Tensor, steepest: float = 0.5) -> None:
    """One step down, by a gradient of a length of at most `steepest`."""
    optimiser.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(optimiser.param_groups[0]["params"], steepest)
    optimiser.step()


def play(learner: Learner, seas: list[Sea], noise: float) -> tuple[list[Tensor], float, float]:
    """STEPS steps of all seas: senses, steering, likelihood, gain and worth of all fish, the mean reward a
    second, and how many were caught. `noise` is the spread of what fish try beside what the policy says.
    """
    seen, done, rewards, worths, deaths = [], [], [], [], []
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


def trial(policy: Policy) -> Score:
    """How the policy fares without noise."""
    with torch.no_grad():
        return mean_score(
            measure(lambda senses: policy(torch.from_numpy(senses)).numpy(), seed, TRIAL_SECONDS)
            for seed in TRIAL_SEEDS
        )


def train(rounds: int) -> Policy:
    """Let fish learn for `rounds` rounds, printing how they fare. Returns the policy that fared best."""
    learner, school = Learner(), round(SCHOOL * rounds)
    seas: list[Sea] = []
    remembered: deque[Tensor] = deque(maxlen=REMEMBERED)
    fared = []
    best, best_score = learner.policy, -np.inf
    for turn in range(rounds):
        # The seas begin anew by turns, so that there is always a young one and an old one.
        for i, sharks in enumerate(SHARKS):
            if turn == 0 or (turn + i * LIFE // len(SHARKS)) % LIFE == 0:
                seas[i : i + 1] = [Sea(FISH, np.random.default_rng((SEED, i, turn)), sharks)]
        is_school = turn < school
        done = turn / school if is_school else (turn - school) / (rounds - school)
        rate = QUICKEST * min(10 * done + 0.1, 1.0) if is_school else CALM
        learner.steers.param_groups[0]["lr"] = rate * (1.0 - done)
        learner.spread = BOLD + (SURE - BOLD) * done
        with torch.no_grad():
            experience, *fares = play(learner, seas, 0.0 if is_school else np.exp(learner.spread))
        if is_school:
            remembered.append(experience[0][::2])
            learner.imitate(torch.cat(tuple(remembered)))
            learner.foresee(experience[0], experience[-1])
        else:
            learner.improve(*experience)
        fared.append(fares)
        if turn % 10 == 9:
            pleasure, deaths = np.mean(fared[-10:], axis=0)
            told = f"reward {pleasure:.3f} a second, caught {6000 * deaths:.1f} of 100 a minute"
            print(f"round {turn + 1} of {rounds}: {told}", flush=True)
        if turn >= school - 1 and (turn + 1 - school) % TRIALS == 0:
            score = trial(learner.policy)
            print(f"trial: {score}", flush=True)
            if score.reward > best_score:
                best, best_score = copy.deepcopy(learner.policy), score.reward
    return best.eval()


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
        hidden=HIDDEN,
        minutes=time.process_time() / 60,
        timid=TIMID,
        school=SCHOOL,
    )
    for name, score in scores.items():
        print(f"{name}: {score}")
    print(f"{time.process_time():.0f} s of one core, {time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main()
