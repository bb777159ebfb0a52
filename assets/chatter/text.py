"""From sentences to rows of word numbers: the vocabulary, the prompt, and the texts for training."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from assets.chatter.grammar import (
    MOODS,
    NAMES,
    TOPICS,
    TURNS,
    Rule,
    Scene,
    openings,
    pick,
    random_scene,
    rule,
)

ROOM = 52
"""The longest text in words: four that say who speaks to whom, how and about what, a sentence that was
heard, and one that is said, with a sign before and behind it."""
SAY, END = "<say>", "<end>"


@dataclass(frozen=True)
class Vocabulary:
    """All words in the order of their numbers."""

    words: tuple[str, ...]

    @classmethod
    def of_grammar(cls) -> Vocabulary:
        """Every word that any rule has, signs and names first."""
        rng = np.random.default_rng(0)
        found: set[str] = set()
        for _ in range(6000):
            scene = random_scene(rng)
            for turn in range(TURNS):
                found |= _words(rule(scene, turn))
        signs = [END, SAY, *NAMES, *(f"<{word}>" for word in (*MOODS, *TOPICS))]
        return cls((*signs, *sorted(found - set(signs))))

    @cached_property
    def numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    def encode(self, text: str) -> list[int]:
        return [self.numbers[word] for word in text.split()]

    def decode(self, numbers: list[int]) -> str:
        return " ".join(self.words[number] for number in numbers)


def _words(found: Rule) -> set[str]:
    if isinstance(found, str):
        return set(found.split())
    return {word for part in found for word in _words(part)}


def prompt(scene: Scene, turn: int, heard: str) -> str:
    """What the network reads before it speaks."""
    signs = f"{scene.speaker(turn)} {scene.listener(turn)} <{scene.mood(turn)}> <{scene.topic}>"
    return " ".join(f"{signs} {heard} {SAY}".split())


@dataclass(frozen=True)
class Line:
    """One turn of a scene: what was heard, what is said, and the logarithm of the grammar's chance of it."""

    scene: Scene
    turn: int
    heard: str
    said: str
    chance: float


def lines(count: int, seed: int, *, held_out: bool = False) -> list[Line]:
    """`count` lines of scenes, their turns in turn."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        scene, turn = random_scene(rng, held_out=held_out), number % TURNS
        heard = pick(rule(scene, turn - 1), rng)[0] if turn else ""
        said, chance = pick(rule(scene, turn), rng)
        # Who opens has also chosen what about.
        chance -= 0.0 if turn else float(np.log(len(openings(scene))))
        made.append(Line(scene, turn, heard, said, chance))
    return made


def make_texts(vocabulary: Vocabulary, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Texts (count, ROOM + 1) int64, filled up with END, and weights (count, ROOM) float32.

    A weight is 1 where the next word is one of what is said or its END, else 0.
    """
    texts = np.zeros((count, ROOM + 1), np.int64)
    weights = np.zeros((count, ROOM), np.float32)
    for row, line in enumerate(lines(count, seed)):
        before = vocabulary.encode(prompt(line.scene, line.turn, line.heard))
        said = vocabulary.encode(f"{line.said} {END}")
        texts[row, : len(before) + len(said)] = before + said
        weights[row, len(before) - 1 : len(before) + len(said) - 1] = 1.0
    return texts, weights
