"""Train the network of the `chatter` demo; write `chatter.onnx`, `words.txt` and the model card.

    python -m assets.chatter.train_chatter

from the root of the repository. It needs the extras `train` and `test` (`pip install -e .[train,test]`), no
network and no GPU; about two minutes on one core. All text comes from `grammar.py`. Seeds are fixed: on the
same machine with the same library versions the result is the same.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from assets.chatter.model_card import write_card
from assets.chatter.text import ROOM, Vocabulary, make_texts
from assets.exporting import export

HERE = Path(__file__).parent
WIDTH, HEADS, LAYERS = 64, 4, 3
STEPS, BATCH, RATE = 2200, 32, 3e-3
TEXTS = 60_000
HEAT = 0.8  # below 1, likely words become likelier still
LEAST = 0.05  # words this much less likely than the likeliest one are never said
SPEAKERS = 11
SEED = 1


class Block(nn.Module):
    """Attention to what came before, and a dense layer, both added to what goes through."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key, self.value = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.join = nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(3 * WIDTH, WIDTH)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, hidden: Tensor) -> Tensor:
        """query (n, q, WIDTH), key and value (n, t, WIDTH); hidden (n or 1, 1, q, t) where not to look."""
        q, k, v = (
            x.reshape(x.shape[0], x.shape[1], HEADS, WIDTH // HEADS).transpose(1, 2)
            for x in (query, key, value)
        )
        scores = q @ k.transpose(2, 3) * (WIDTH // HEADS) ** -0.5 + hidden
        seen = torch.softmax(scores, dim=3) @ v
        return self.join(seen.transpose(1, 2).reshape(query.shape))

    def think(self, x: Tensor) -> Tensor:
        return x + self.narrow(functional.gelu(self.wide(self.norm2(x)), approximate="tanh"))

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        y = self.norm(x)
        return self.think(x + self.attend(self.query(y), self.key(y), self.value(y), hidden))


class Chatter(nn.Module):
    """A decoder: words (n, t) -> logits of the next one (n, t, words)."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, WIDTH)
        self.places = nn.Embedding(ROOM, WIDTH)
        nn.init.normal_(self.words.weight, std=0.05)
        nn.init.normal_(self.places.weight, std=0.05)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, words: Tensor) -> Tensor:
        length = words.shape[1]
        x = self.words(words) + self.places.weight[:length]
        hidden = torch.full((length, length), -1e4).triu(1)
        for block in self.blocks:
            x = block(x, hidden)
        return self.norm(x) @ self.words.weight.T


class Step(nn.Module):
    """One word for each of n speakers, as it is exported.

    word, place (n,) int64: the latest word and where it stands; chance (n,) from 0 to 1 decides which of the
    likely words comes next; memory: for each layer (2, n, ROOM, WIDTH), keys and values so far. Returns the
    next word (n,) int64, the probability of each word (n, words) and the memory with this word in it.
    """

    def __init__(self, chatter: Chatter) -> None:
        super().__init__()
        self.chatter = chatter

    def forward(self, word: Tensor, place: Tensor, chance: Tensor, *memory: Tensor) -> tuple[Tensor, ...]:
        net = self.chatter
        x = (net.words(word) + net.places(place))[:, None]
        room = torch.arange(ROOM)[None]
        here = (room == place[:, None])[:, :, None]
        hidden = torch.where(room > place[:, None], -1e4, 0.0)[:, None, None]
        kept = []
        for block, past in zip(net.blocks, memory, strict=True):
            y = block.norm(x)
            now = torch.where(here, torch.stack((block.key(y), block.value(y))), past)
            x = block.think(x + block.attend(block.query(y), now[0], now[1], hidden))
            kept.append(now)
        logits = net.norm(x[:, 0]) @ net.words.weight.T
        chances = torch.softmax(logits / HEAT, dim=1)
        chances = torch.where(chances < LEAST * chances.amax(dim=1, keepdim=True), 0.0, chances)
        ladder = torch.cumsum(chances, dim=1)
        passed = (ladder <= chance[:, None] * ladder[:, -1:]).to(torch.int64).sum(dim=1)
        chosen = torch.clamp(passed, max=chances.shape[1] - 1)
        return chosen, torch.softmax(logits, dim=1), *kept


def train(chatter: Chatter, texts: np.ndarray, weights: np.ndarray, steps: int) -> None:
    """Fit to texts (n, ROOM + 1) of word numbers; weights (n, ROOM) says which words are to be learned."""
    words, counted = torch.from_numpy(texts), torch.from_numpy(weights)
    generator = torch.Generator().manual_seed(SEED)
    optimiser = torch.optim.AdamW(chatter.parameters(), lr=RATE, weight_decay=0.02, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=RATE, total_steps=steps, pct_start=0.1)
    total = 0.0
    for step in range(steps):
        batch = torch.randint(len(words), (BATCH,), generator=generator)
        text, weight = words[batch], counted[batch]
        length = int((weight.sum(dim=0) > 0).nonzero().max()) + 1
        logits = chatter(text[:, :length])
        losses = functional.cross_entropy(
            logits.flatten(0, 1), text[:, 1 : length + 1].flatten(), reduction="none"
        )
        weight = weight[:, :length].flatten()
        loss = (losses * weight).sum() / weight.sum()
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(chatter.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        total += loss.item()
        if (step + 1) % 200 == 0:
            print(f"step {step + 1} of {steps}: loss {total / 200:.4f} a word", flush=True)
            total = 0.0


def export_step(chatter: Chatter, path: Path) -> None:
    """Write one step, for any number of speakers."""
    example = (
        torch.zeros(SPEAKERS, dtype=torch.int64),
        torch.zeros(SPEAKERS, dtype=torch.int64),
        torch.zeros(SPEAKERS),
        *(torch.zeros(2, SPEAKERS, ROOM, WIDTH) for _ in range(LAYERS)),
    )
    speakers = torch.export.Dim("speakers")
    export(
        Step(chatter),
        example,
        path,
        ["word", "place", "chance", *[f"memory_{layer}" for layer in range(LAYERS)]],
        ["next", "chances", *[f"kept_{layer}" for layer in range(LAYERS)]],
        dynamic=({0: speakers}, {0: speakers}, {0: speakers}, tuple({1: speakers} for _ in range(LAYERS))),
    )


def main() -> None:
    """Train, export, measure the exported file and write the card."""
    parser = argparse.ArgumentParser(description="Train the network of chatter; write it and its card.")
    parser.add_argument("--output", type=Path, default=HERE, help="folder (default: beside the script)")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--card", action="store_true", help="measure the model that is there; do not train")
    arguments = parser.parse_args()
    folder: Path = arguments.output
    folder.mkdir(parents=True, exist_ok=True)
    if arguments.card:
        print(write_card(folder, SEED, TEXTS))
        return
    started = time.perf_counter()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)
    vocabulary = Vocabulary.of_grammar()
    (folder / "words.txt").write_text("\n".join(vocabulary.words) + "\n", encoding="utf-8")
    texts, weights = make_texts(vocabulary, TEXTS, SEED)
    chatter = Chatter(len(vocabulary.words))
    count = sum(parameter.numel() for parameter in chatter.parameters())
    print(
        f"{len(vocabulary.words)} words, {count} weights, {time.perf_counter() - started:.0f} s", flush=True
    )
    train(chatter, texts, weights, arguments.steps)
    export_step(chatter, folder / "chatter.onnx")
    print(write_card(folder, SEED, TEXTS))
    print(f"{time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main()
