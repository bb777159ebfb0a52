"""Draws the village, its people, their speech bubbles and the network's figures."""

from __future__ import annotations

import math
import textwrap

import numpy as np

from demos.chatter.village import Person, Village
from demos.chatter.words import MOODS, TOPICS
from gameglue import MonoBehaviour, Page, Palette, Rect

_STAYS = 3.2  # seconds that a bubble stays after its last word
_LARGEST = 212.0, 62.0  # size of a full bubble, for which a side is chosen: it stays while the text grows
_SIDES = (
    *((0, -46, 0.5, 1.0), (50, -24, 0.0, 0.5), (-50, -24, 1.0, 0.5), (0, 74, 0.5, 0.0)),
    *((0, -46, 0.15, 1.0), (0, -46, 0.85, 1.0)),
)
"""Where a bubble may be: its anchor, relative to the body, and the part of its size left of and above it."""
_MOOD_COLORS = dict(zip(MOODS, (Palette.GOOD, "#8fa8ff", Palette.BAD, "#f0b2dc"), strict=True))


class Scenery(MonoBehaviour):
    """Draws everything."""

    village: Village
    title: str

    def start(self) -> None:
        """Load the pictures."""
        read = self.resources.read_image
        self.ground = self.app.graphics.texture(read("chatter/village.png"))
        self.crowd = self.app.graphics.texture(read("chatter/people.png"))

    def on_gui(self) -> None:
        """Draw from back to front."""
        page, village, time = Page(self.app.gui), self.village, self.time.time
        page.image(self.ground, 0, 0, page.width, page.height)
        if time - village.bell < 1.0:
            page.circle(480, 280, 20 + 300 * (time - village.bell), "#ffd27a60", border=4)
        near = village.nearest()
        everybody = sorted((*village.people, village.player), key=lambda person: person.spot[1])
        for person in everybody:
            self._person(page, person, person is near)
        # The player's bubble is placed first. Bubbles keep clear of people, their names and their moods;
        # covering one of these is worse than covering another bubble, so they count several times.
        taken = 3 * [Rect(person.spot[0] - 46, person.spot[1] - 34, 92, 101) for person in everybody]
        for person in sorted(everybody, key=lambda person: bool(person.trade)):
            if person.voice.is_talking or (person.voice.said and time - person.voice.due < _STAYS):
                taken.append(self._bubble(page, person, taken))
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

    def _bubble(self, page: Page, person: Person, taken: list[Rect]) -> Rect:
        """Draw a speech bubble on the side where it covers least of `taken`; returns what it may grow to."""
        said = person.voices.vocabulary.sentence(person.voice.said)
        text = "\n".join(textwrap.wrap(said or "...", 27))
        wide, tall = page.measure(text, 13)
        (x, y), size = person.spot, (wide + 24, tall + 14)
        places = [beside(person.spot, side, _LARGEST) for side in _SIDES]
        covered = [sum(overlap(place, other) for other in taken) for place in places]
        best = covered.index(min(covered))
        left, top, wide, tall = box = beside(person.spot, _SIDES[best], size)
        paper, ink = ("#f4f1e8", "#20242c") if person.trade else ("#123a52", Palette.TEXT)
        page.rect(left, top, wide, tall, paper, 9)
        page.circle(min(max(x, left + 4), box.right - 4), min(max(y - 24, top), box.bottom), 4, paper)
        page.rect(left + 4, top + 6, 3, tall - 12, _MOOD_COLORS[person.mood], 1.5)
        page.text(text, left + 14, top + tall / 2, 13, ink)
        return places[best]

    def _status(self, page: Page, near: Person | None) -> None:
        voices = self.village.player.voices
        page.rect(0, 0, page.width, 48, "#12151cf0")
        page.heading("chatter", "one small transformer predicts every word that is said", y=25)
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


def beside(spot: tuple[float, float], side: tuple[float, ...], size: tuple[float, float]) -> Rect:
    """A box of a size on one of the `_SIDES` of a body, moved into the picture."""
    dx, dy, left, above = side
    x, y = spot[0] + dx - left * size[0], spot[1] + dy - above * size[1]
    return Rect(min(max(x, 8.0), 952 - size[0]), min(max(y, 54.0), 594 - size[1]), *size)


def overlap(one: Rect, other: Rect) -> float:
    """The area that two boxes share."""
    width = min(one.right, other.right) - max(one.x, other.x)
    return max(width, 0.0) * max(min(one.bottom, other.bottom) - max(one.y, other.y), 0.0)
