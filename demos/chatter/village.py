"""The villagers, and their conversations."""

from __future__ import annotations

import math
from collections.abc import Iterator

from demos.chatter.voices import Voice, Voices
from demos.chatter.words import MOODS, TOPICS
from gameglue import Coroutine, MonoBehaviour, WaitUntil

PEOPLE = {
    "anna": ("baker", 125, 178), "bram": ("smith", 355, 174), "cora": ("fisher", 606, 178),
    "dirk": ("farmer", 842, 178), "elsa": ("weaver", 128, 354), "finn": ("hunter", 400, 355),
    "greta": ("healer", 828, 355), "hugo": ("miller", 122, 530), "ida": ("potter", 405, 530),
    "jon": ("innkeeper", 812, 530),
}  # fmt: skip
"""Trade and place. Between two rows, a bubble of three lines fits above a head and below a name."""
NEAR, REACH = 120.0, 300.0  # distances in pixels of a 960 x 640 page, to talk with the player, a neighbour
SPEED, PAUSE = 220.0, 1.1  # pixels a second; seconds between two turns of a conversation


class Person(MonoBehaviour):
    """A speaker: one row of the network's batch. `trade` is empty for the player."""

    voices: Voices
    row: int
    trade: str
    mood: str

    def awake(self) -> None:
        """Start silent."""
        self.voice = Voice()
        self.partner: Person | None = None
        self.talk: Coroutine | None = None

    @property
    def spot(self) -> tuple[float, float]:
        """Centre of the body, in pixels of a 960 x 640 page."""
        x, y, _ = self.transform.position
        return x, y

    def distance(self, other: Person) -> float:
        """Distance to another person, in the same pixels."""
        return math.dist(self.spot, other.spot)

    def say(self, listener: Person, topic: str, heard: list[int]) -> None:
        """Start to speak in reply to `heard`, the words of the previous sentence."""
        words = self.voices.vocabulary
        self.voice = self.voices.say(
            self.row, words.prompt(self.name, listener.name, self.mood, topic, heard)
        )


class Village(MonoBehaviour):
    """Starts conversations: between neighbours by chance, with the player by keys, with all by the bell."""

    people: list[Person]
    player: Person

    def awake(self) -> None:
        """Start with no conversation."""
        self.heard: list[str] = []
        self.bell, self._next = -60.0, 0.2

    def update(self) -> None:
        """Read the keys; now and then start a conversation between two idle villagers."""
        near = self.nearest()
        if near is not None:
            for number, topic in enumerate(TOPICS, 1):
                if self.input.get_key_down(str(number)):
                    self.begin(self.player, near, topic)
            if self.input.get_key_down("m"):
                near.mood = MOODS[(MOODS.index(near.mood) + 1) % len(MOODS)]
        if self.input.get_key_down("space"):
            self.ring()
        free = [person for person in self.people if person.partner is None]
        if self.time.time > self._next and len(free) > 1:
            self._next, choice = self.time.time + 0.35, self.app.python_random.choice
            first = choice(free)
            others = [other for other in free if other is not first and first.distance(other) < REACH]
            if others:
                self.begin(first, choice(others), choice(TOPICS))

    def nearest(self) -> Person | None:
        """The villager next to the player, if there is one."""
        near = min(self.people, key=self.player.distance)
        return near if self.player.distance(near) < NEAR else None

    def begin(self, first: Person, second: Person, topic: str) -> None:
        """Start a conversation of two people; ends those they were in."""
        self.hush(first, second)
        first.partner, second.partner = second, first
        first.talk = second.talk = self.start_coroutine(self._talk(first, second, topic))

    def hush(self, *people: Person) -> None:
        """End the conversations of these people."""
        for person in people:
            if person.talk is not None:
                person.talk.stop()
            for one in (person.partner, person):
                if one is not None:
                    one.voice.is_talking = False
                    one.voice, one.partner, one.talk = Voice(), None, None

    def ring(self) -> None:
        """Ring the bell: all villagers speak at once, each to the nearest neighbour."""
        self.hush(*self.people)
        self.bell, self._next = self.time.time, self.time.time + 6.0
        for number, person in enumerate(self.people):
            nearest = sorted(self.people, key=person.distance)[1]
            person.say(nearest, TOPICS[number % len(TOPICS)], [])

    def _talk(self, first: Person, second: Person, topic: str) -> Iterator[object]:
        """Three turns: opening, reply, reaction. Each sentence is part of the next prompt."""
        heard: list[int] = []
        for speaker, listener in ((first, second), (second, first), (first, second)):
            speaker.say(listener, topic, heard)
            voice = speaker.voice
            yield WaitUntil(lambda voice=voice: not voice.is_talking)  # type: ignore[misc]
            heard = voice.said
            self.heard.append(f"{speaker.name}: {speaker.voices.vocabulary.sentence(heard)}")
            yield self.app.seconds(PAUSE)
        first.partner = second.partner = first.talk = second.talk = None


class Feet(MonoBehaviour):
    """Moves the player: by keys, or in autoplay from one villager to the next."""

    village: Village
    autoplay: bool

    def awake(self) -> None:
        """Start before the first question."""
        self._asked, self._until = 0, 0.0

    def update(self) -> None:
        """Move by the keys, or by the script."""
        right, down = self.input.get_axis("horizontal"), -self.input.get_axis("vertical")
        self.autoplay = self.autoplay and not (right or down)
        if self.autoplay and self.time.time > self._until:
            right, down = self._lead()
        share = SPEED * self.time.delta_time / max(math.hypot(right, down), 1.0)
        x, y, _ = self.transform.position
        x, y = min(max(x + right * share, 40.0), 920.0), min(max(y + down * share, 100.0), 530.0)
        self.transform.position = (x, y, 0.0)

    def _lead(self) -> tuple[float, float]:
        """The direction to the next villager; on arrival, ask and wait for the answers."""
        village, me = self.village, self.village.player
        if self._asked % 4 == 0 and self.time.time - village.bell > 30.0:
            village.ring()
        goal = village.people[(5 + 3 * self._asked) % len(village.people)]
        if me.distance(goal) < 0.75 * NEAR:
            village.begin(me, goal, TOPICS[(3 + self._asked) % len(TOPICS)])
            self._asked, self._until = self._asked + 1, self.time.time + 9.0
            return 0.0, 0.0
        return goal.spot[0] + 75 - me.spot[0], goal.spot[1] - me.spot[1]
