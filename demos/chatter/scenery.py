"""What the window shows: the village, its people, what they say, and how the network does."""

from __future__ import annotations

import math
import textwrap

import numpy as np

from demos.chatter.village import Person, Village
from demos.chatter.words import MOODS, TOPICS
from gameglue import MonoBehaviour, Page, Palette

_STAYS = 3.2  # seconds that a bubble stays after its last word
_MOOD_COLORS = dict(zip(MOODS, (Palette.GOOD, "#8fa8ff", Palette.BAD, "#f0b2dc"), strict=True))


class Scenery(MonoBehaviour):
    """Everything that is drawn."""

    village: Village
    title: str

    def start(self) -> None:
        """Load the pictures."""
        read = self.resources.read_image
        self.ground = self.app.graphics.texture(read("chatter/village.png"))
        self.crowd = self.app.graphics.texture(read("chatter/people.png"))

    def on_gui(self) -> None:
        """Draw from the ground up."""
        page, village, time = Page(self.app.gui), self.village, self.time.time
        page.image(self.ground, 0, 0, page.width, page.height)
        if time - village.bell < 1.0:
            page.circle(480, 280, 20 + 300 * (time - village.bell), "#ffd27a60", border=4)
        near = village.nearest()
        everybody = sorted((*village.people, village.player), key=lambda person: person.spot[1])
        for person in everybody:
            self._person(page, person, person is near)
        for person in everybody:
            if person.voice.is_talking or (person.voice.said and time - person.voice.due < _STAYS):
                self._bubble(page, person)
        self._status(page, near)

    def _person(self, page: Page, person: Person, is_near: bool) -> None:
        (x, y), row = person.spot, MOODS.index(person.mood)
        if is_near:
            page.circle(x, y + 2, 42, Palette.ACCENT, border=2)
        hop = 3.0 * abs(math.sin(9.0 * self.time.time)) if person.voice.is_talking else 0.0
        columns = len(self.village.people) + 1
        region = (person.row / columns, row / 4, (person.row + 1) / columns, (row + 1) / 4)
        page.image(self.crowd, x - 25.5, y - 34 - hop, 51, 68, region=region)
        name = f"{person.name.capitalize()}, {person.trade}" if person.trade else "you"
        wide = max(page.measure(name, 12.5)[0], page.measure(person.mood, 11.5)[0]) + 14
        page.rect(x - wide / 2, y + 35, wide, 32, "#0d1517b0", 7)
        page.text(name, x, y + 44, 12.5, align="center")
        page.text(person.mood, x, y + 58, 11.5, _MOOD_COLORS[person.mood], "center")

    def _bubble(self, page: Page, person: Person) -> None:
        said = person.voices.vocabulary.sentence(person.voice.said)
        text = "\n".join(textwrap.wrap(said or "...", 27))
        wide, tall = page.measure(text, 13)
        wide, tall = wide + 24, tall + 14
        x, y = person.spot
        # The player's own words stand below, so that the answers of who is near stay in sight.
        top = max(y - 46 - tall, 54.0) if person.trade else min(y + 74, 594 - tall)
        left = min(max(x - wide / 2, 8.0), 952 - wide)
        paper, ink = ("#f4f1e8", "#20242c") if person.trade else ("#123a52", Palette.TEXT)
        page.rect(left, top, wide, tall, paper, 9)
        page.rect(x - 3.5, top + (tall if person.trade else -7), 7, 7, paper, 3.5)
        page.rect(left + 4, top + 6, 3, tall - 12, _MOOD_COLORS[person.mood], 1.5)
        page.text(text, left + 14, top + tall / 2, 13, ink)

    def _status(self, page: Page, near: Person | None) -> None:
        voices = self.village.player.voices
        page.rect(0, 0, page.width, 48, "#12151cf0")
        page.heading("chatter", "one small transformer finds every word that is said", y=25)
        speaking = sum(voice.is_talking for voice in voices.voices)
        took = f"{np.median(voices.step_ms):.1f} ms" if voices.step_ms else "..."
        page.text(f"{speaking} speaking, the next word for all: {took}", 938, 16, 13, align="right")
        page.text(self.title, 938, 34, 12, Palette.MUTED, "right")
        page.rect(0, 598, page.width, 42, "#12151cf0")
        x, keys = 22.0, {"arrows": "walk up to somebody and ask", "space": "bell: all at once", "Esc": "quit"}
        if near is not None:
            x += page.text(f"ask {near.name.capitalize()}", x, 619, 14, Palette.ACCENT) + 18
            keys = {str(n): topic for n, topic in enumerate(TOPICS, 1)}
            keys |= {"M": "other mood", "space": "bell: all at once"}
        page.keys(keys, x=x, y=619)
