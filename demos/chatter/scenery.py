"""What the window shows: the village, its people, what they say, and how the network does."""

from __future__ import annotations

import math
import textwrap
from typing import Literal

import numpy as np

from demos.chatter.village import Person, Village
from demos.chatter.words import MOODS, TOPICS
from gameglue import MonoBehaviour, Palette

_STAYS = 3.2  # seconds that a bubble stays after its last word
_MOOD_COLORS = dict(zip(MOODS, (Palette.GOOD, "#8fa8ff", Palette.BAD, "#f0b2dc"), strict=True))


class Scenery(MonoBehaviour):
    """Everything that is drawn: lengths are pixels of a 960 x 640 window, times `unit`."""

    village: Village
    title: str

    def start(self) -> None:
        """Load the pictures."""
        read = self.resources.read_image
        self.ground = self.app.graphics.texture(read("chatter/village.png"))
        self.crowd = self.app.graphics.texture(read("chatter/people.png"))

    def on_gui(self) -> None:
        """Draw from the ground up."""
        self.unit = min(self.app.size[0] / 960, self.app.size[1] / 640)
        village, time = self.village, self.time.time
        self.app.gui.image(self.ground, 0, 0, 960 * self.unit, 640 * self.unit)
        if time - village.bell < 1.0:
            wave = self.unit * (20 + 300 * (time - village.bell))
            self.app.gui.circle(480 * self.unit, 280 * self.unit, wave, "#ffd27a60", border=4 * self.unit)
        near = village.nearest()
        everybody = sorted((*village.people, village.player), key=lambda person: person.spot[1])
        for person in everybody:
            self._person(person, person is near)
        for person in everybody:
            if person.voice.is_talking or (person.voice.said and time - person.voice.due < _STAYS):
                self._bubble(person)
        self._status(near)

    def _rect(self, x: float, y: float, width: float, height: float, color: str, radius: float = 0.0) -> None:
        x, y, width, height, radius = (value * self.unit for value in (x, y, width, height, radius))
        self.app.gui.rect(x, y, width, height, color, radius=radius)

    def _text(
        self, text: str, x: float, y: float, size: float, color: str = Palette.TEXT,
        align: Literal["left", "center", "right"] = "left",
    ) -> float:  # fmt: skip
        u, gui = self.unit, self.app.gui
        return gui.text(text, x * u, y * u, size=size * u, color=color, align=align, valign="center") / u

    def _wide(self, text: str, size: float) -> float:
        return self.app.gui.measure(text, size=size * self.unit)[0] / self.unit

    def _person(self, person: Person, is_near: bool) -> None:
        (x, y), u, gui, row = person.spot, self.unit, self.app.gui, MOODS.index(person.mood)
        if is_near:
            gui.circle(x * u, (y + 2) * u, 42 * u, Palette.ACCENT, border=2 * u)
        hop = 3.0 * abs(math.sin(9.0 * self.time.time)) if person.voice.is_talking else 0.0
        columns = len(self.village.people) + 1
        region = (person.row / columns, row / 4, (person.row + 1) / columns, (row + 1) / 4)
        gui.sprite(self.crowd, x * u, (y - hop) * u, 51 * u, 68 * u, region=region)
        name = f"{person.name.capitalize()}, {person.trade}" if person.trade else "you"
        self._rect(
            x - self._wide(name, 12.5) / 2 - 7, y + 35, self._wide(name, 12.5) + 14, 32, "#0d1517b0", 7
        )
        self._text(name, x, y + 44, 12.5, align="center")
        self._text(person.mood, x, y + 58, 11.5, _MOOD_COLORS[person.mood], "center")

    def _bubble(self, person: Person) -> None:
        said = person.voices.vocabulary.sentence(person.voice.said)
        text = "\n".join(textwrap.wrap(said or "...", 27))
        wide, tall = (length / self.unit for length in self.app.gui.measure(text, size=13 * self.unit))
        wide, tall = wide + 24, tall + 14
        x, y = person.spot
        # The player's own words stand below, so that the answers of who is near stay in sight.
        top = max(y - 46 - tall, 54.0) if person.trade else min(y + 74, 594 - tall)
        left = min(max(x - wide / 2, 8.0), 952 - wide)
        paper, ink = ("#f4f1e8", "#20242c") if person.trade else ("#123a52", Palette.TEXT)
        self._rect(left, top, wide, tall, paper, 9)
        self._rect(x - 3.5, top + (tall if person.trade else -7), 7, 7, paper, 3.5)
        self._rect(left + 4, top + 6, 3, tall - 12, _MOOD_COLORS[person.mood], 1.5)
        self._text(text, left + 14, top + tall / 2, 13, ink)

    def _status(self, near: Person | None) -> None:
        voices = self.village.player.voices
        self._rect(0, 0, 960, 48, "#12151cf0")
        wide = self._text("chatter", 22, 24, 26)
        self._text("one small transformer finds every word that is said", 38 + wide, 27, 14, Palette.MUTED)
        speaking = sum(voice.is_talking for voice in voices.voices)
        took = f"{np.median(voices.step_ms):.1f} ms" if voices.step_ms else "..."
        self._text(f"{speaking} speaking, the next word for all: {took}", 938, 16, 13, align="right")
        self._text(self.title, 938, 34, 12, Palette.MUTED, "right")
        self._rect(0, 598, 960, 42, "#12151cf0")
        keys = [("arrows", "walk up to somebody and ask"), ("space", "bell: all at once"), ("Esc", "quit")]
        if near is not None:
            keys = [*((str(n), topic) for n, topic in enumerate(TOPICS, 1)), ("M", "other mood"), keys[1]]
        x = 22.0 + (
            self._text(f"ask {near.name.capitalize()}", 22, 619, 14, Palette.ACCENT) + 18 if near else 0
        )
        for key, meaning in keys:
            wide = self._wide(key, 13) + 14
            self._rect(x, 607, wide, 24, Palette.RAISED, 5)
            self._text(key, x + 7, 619, 13)
            x += wide + 7
            x += self._text(meaning, x, 619, 13, Palette.MUTED) + 18
