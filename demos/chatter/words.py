"""Tokenizer: prompts to token numbers, and token numbers to sentences."""

from __future__ import annotations

import re
from pathlib import Path

MOODS = ("cheerful", "gloomy", "angry", "shy")
TOPICS = ("greeting", "trade", "gossip", "lost", "weather")
ROOM = 52  # length of the KV cache in words: a prompt and the sentence after it


class Vocabulary:
    """The vocabulary; a word's number is its line in `words.txt`."""

    def __init__(self, path: Path) -> None:
        self.words = path.read_text(encoding="utf-8").split()
        self._numbers = {word: number for number, word in enumerate(self.words)}
        self.end = self._numbers["<end>"]

    def prompt(self, speaker: str, listener: str, mood: str, topic: str, heard: list[int]) -> list[int]:
        """Token numbers of a prompt: speaker, listener, mood, topic and the sentence heard."""
        signs = (speaker, listener, f"<{mood}>", f"<{topic}>")
        return [*(self._numbers[sign] for sign in signs), *heard, self._numbers["<say>"]]

    def sentence(self, said: list[int]) -> str:
        """Token numbers as text, with capitals and without spaces before punctuation."""
        names = self.words[2:13]
        words = [self.words[number] for number in said]
        text = " ".join(word.capitalize() if word in names or word == "i" else word for word in words)
        text = re.sub(r" (?=[,.!?])", "", text)
        return re.sub(r"(^|[.!?] )([a-z])", lambda match: match[1] + match[2].upper(), text)
