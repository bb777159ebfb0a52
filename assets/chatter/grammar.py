"""The language of the village: a grammar that makes all text for training, and judges what is said.

A conversation has up to three turns: one opens, the other replies, the first reacts. What may be said in a
turn depends on who speaks to whom, in which mood, about what, and on the sentence before.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, replace

import numpy as np

Rule = str | tuple["Rule", ...] | list["Rule"]
"""Words; a tuple of rules one after the other; or a list of rules of which one is taken."""

TURNS = 3
MOODS = ("cheerful", "gloomy", "angry", "shy")
TOPICS = ("greeting", "trade", "gossip", "lost", "weather")
GOODS = {
    "anna": "bread", "bram": "nails", "cora": "fish", "dirk": "apples", "elsa": "wool", "finn": "furs",
    "greta": "herbs", "hugo": "flour", "ida": "pots", "jon": "ale", "traveller": "spices",
}  # fmt: skip
PLURALS = ("nails", "apples", "furs", "herbs", "pots", "spices")
HOMES = {
    "anna": "behind the bakery", "bram": "near the forge", "cora": "down at the pier",
    "dirk": "in my orchard", "elsa": "under the big oak", "finn": "at the edge of the forest",
    "greta": "in the herb garden", "hugo": "beside the mill", "ida": "by the kiln",
    "jon": "outside the inn", "traveller": "on the north road",
}  # fmt: skip
NAMES = tuple(GOODS)
ANIMALS = ("goat", "cat", "goose", "pig", "pony")
PLACES = ("at the well", "in the chapel", "on the bridge", "behind the barn", "on the hill")
DEEDS = ("dancing", "crying", "digging a hole", "counting gold", "singing to the moon", "kissing a frog")
WEATHERS = ("rain", "wind", "fog", "sun", "snow")
TIMES = ("morning", "day", "evening")
NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight")

OPENERS: dict[str, Rule] = {
    "cheerful": ["ah ,", "ha ,", "oh ,", "well well ,"],
    "gloomy": ["ah well ,", "alas ,", "oh dear ,", "hm ,"],
    "angry": ["bah !", "what now ?", "listen ,", "grr !"],
    "shy": ["um ,", "er ,", "sorry ,", "oh , hello ,"],
}
CLOSERS: dict[str, Rule] = {
    "cheerful": [", my friend !", "! what a day !", "! hurray !"],
    "gloomy": [", as always .", ", not that it matters .", ". woe is me ."],
    "angry": ["! now off with you !", "! hmph !", ", you fool !"],
    "shy": [", i think .", ", if you do not mind .", ", maybe ."],
}


@dataclass(frozen=True)
class Scene:
    """Who opens (`first`), who replies (`second`), their moods, the topic, and what it is about."""

    first: str
    second: str
    moods: tuple[str, str]
    topic: str
    third: str
    place: str
    deed: str
    animal: str
    weather: str
    time: str
    price: int

    def speaker(self, turn: int) -> str:
        return self.second if turn == 1 else self.first

    def listener(self, turn: int) -> str:
        return self.first if turn == 1 else self.second

    def mood(self, turn: int) -> str:
        return self.moods[1] if turn == 1 else self.moods[0]

    @property
    def is_held_out(self) -> bool:
        """Whether training never sees this: the same two in the same order, about the same topic."""
        return zlib.crc32(f"{self.first} {self.second} {self.topic}".encode()) % 10 == 0


def random_scene(rng: np.random.Generator, *, held_out: bool = False) -> Scene:
    """Any scene but those held out, or one of those."""

    def one(of: tuple[str, ...]) -> str:
        return of[int(rng.integers(len(of)))]

    while True:
        first, second, third = (NAMES[i] for i in rng.permutation(len(NAMES))[:3])
        scene = Scene(
            first, second, (one(MOODS), one(MOODS)), one(TOPICS), third, one(PLACES), one(DEEDS),
            one(ANIMALS), one(WEATHERS), one(TIMES), int(rng.integers(1, len(NUMBERS) - 1)),
        )  # fmt: skip
        if scene.is_held_out == held_out and "traveller" not in (second, third):
            return scene


def rule(scene: Scene, turn: int) -> Rule:
    """Everything that may be said in a turn of a scene."""
    mood = scene.mood(turn)
    core = _CORES[scene.topic](scene, turn, mood)
    if turn:
        return (OPENERS[mood], core, CLOSERS[mood])
    return ([OPENERS[mood], ""], core)


def _is(good: str) -> str:
    """The verb that agrees with a good."""
    return "are" if good in PLURALS else "is"


def _greeting(s: Scene, turn: int, mood: str) -> Rule:
    good = GOODS[s.second]
    if turn == 0:
        return (
            f"good {s.time} , {s.second} ,",
            [f"how {_is(good)} the", "how goes it with the"],
            f"{good} ?",
        )
    sells, has = ("sell", "have") if good in PLURALS else ("sells", "has")
    mine: dict[str, Rule] = {
        "cheerful": [f"my {good} {sells} like never before", f"i never had better {good}"],
        "gloomy": [f"nobody wants my {good}", f"all my {good} {has} gone bad"],
        "angry": [f"keep your hands off my {good}", f"my {good} {_is(good)} no concern of yours"],
        "shy": [f"my {good} {_is(good)} not too bad", f"you are kind to ask about my {good}"],
    }
    if turn == 1:
        return ([f"good {s.time} , {s.first} ,", f"{s.first} ,"], mine[mood])
    said: dict[str, Rule] = {
        "cheerful": f"i am glad to hear from you , {s.second}",
        "gloomy": f"i wish i had your {good}",
        "angry": f"i do not care about your {good}",
        "shy": f"i should go now , {s.second}",
    }
    return said[mood]


def _trade(s: Scene, turn: int, mood: str) -> Rule:
    good, price = GOODS[s.second], NUMBERS[s.price]
    if turn == 0:
        asked: Rule = [
            f"will you take {price} coins for your {good} ?",
            f"i offer you {price} coins for your {good} .",
        ]
        return ([f"{s.second} ,", ""], asked)
    answers: dict[str, Rule] = {
        "cheerful": [
            f"{price} coins ? the {good} {_is(good)} yours",
            f"{good} for {price} coins , with pleasure",
        ],
        "gloomy": [f"take the {good} for {price} coins", f"{price} coins is more than i hoped for my {good}"],
        "angry": [f"only {price} coins for {good} ? {NUMBERS[s.price + 1]} or nothing"],
        "shy": [f"i hoped for {NUMBERS[s.price + 1]} coins for the {good}"],
    }
    if turn == 1:
        return answers[mood]
    if s.moods[1] in ("cheerful", "gloomy"):
        return [f"{price} coins it is , {s.second}", f"give me the {good} then"]
    price = NUMBERS[s.price + 1]
    reactions: dict[str, Rule] = {
        "cheerful": f"{price} coins it is , {s.second}",
        "gloomy": f"{price} coins is all i have",
        "angry": [f"{price} coins is robbery", f"keep your {good}"],
        "shy": f"then i cannot pay for the {good}",
    }
    return reactions[mood]


def _gossip(s: Scene, turn: int, mood: str) -> Rule:
    if turn == 0:
        return (["have you heard ? ", "do not tell anyone , but"], f"{s.third} was {s.deed} {s.place} .")
    about: dict[str, Rule] = {
        "cheerful": [f"{s.third} {s.place} ? i love it", f"i wish i had seen {s.third} {s.deed}"],
        "gloomy": [f"poor {s.third} , {s.deed} like that", f"{s.third} {s.place} ? it will end badly"],
        "angry": [f"{s.third} again ? {s.deed} is a disgrace", f"i will find {s.third} {s.place}"],
        "shy": [f"i would not be seen {s.deed} {s.place}", f"{s.third} {s.place} ? i hope it is not true"],
    }
    if turn == 1:
        return about[mood]
    swears: dict[str, Rule] = {
        "cheerful": ["i saw it with my own eyes", "it is the best story of the year"],
        "gloomy": ["nobody ever believes me", "we all end like that"],
        "angry": ["someone should put a stop to it", "call me a liar again"],
        "shy": ["please forget what i said", "you did not hear it from me"],
    }
    return (swears[mood], f", {s.second}")


def _lost(s: Scene, turn: int, mood: str) -> Rule:
    if turn == 0:
        asked: Rule = [
            f"have you seen my {s.animal} ?",
            f"i cannot find my {s.animal} .",
            f"where is my {s.animal} ?",
        ]
        return ([f"{s.second} ,", ""], asked)
    home = HOMES[s.second]
    seen: list[Rule] = [f"your {s.animal} is {home}", f"i saw a {s.animal} {home}"]
    if turn == 1:
        return [*seen, f"keep your {s.animal} away ! it is {home}"] if mood == "angry" else seen
    thanks: dict[str, Rule] = {
        "cheerful": [f"thank you , {s.second}", f"i knew my {s.animal} was fine"],
        "gloomy": [f"the poor {s.animal} must be hungry", f"my {s.animal} always runs from me"],
        "angry": [f"you stole my {s.animal}", f"that {s.animal} will be stew tonight"],
        "shy": [f"thank you , {s.second}", f"i hope you can bring the {s.animal} to me"],
    }
    return thanks[mood]


def _weather(s: Scene, turn: int, mood: str) -> Rule:
    if turn == 0:
        return ([f"{s.second} ,", ""], ["what do you say to this", "how do you like the"], f"{s.weather} ?")
    views: dict[str, Rule] = {
        "cheerful": [
            f"the {s.weather} is good for my {GOODS[s.second]}",
            f"i could dance in the {s.weather}",
        ],
        "gloomy": [
            f"the {s.weather} ruins my {GOODS[s.second]}",
            f"{s.weather} today , {s.weather} tomorrow",
        ],
        "angry": [f"curse the {s.weather}", f"this {s.weather} spoils all my {GOODS[s.second]}"],
        "shy": [f"the {s.weather} makes me sneeze", f"i hide from the {s.weather} {HOMES[s.second]}"],
    }
    if turn == 1:
        return views[mood]
    ends: dict[str, Rule] = {
        "cheerful": f"let us drink to the {s.weather} , {s.second}",
        "gloomy": f"the {s.weather} will only get worse",
        "angry": f"do not talk to me about the {s.weather}",
        "shy": f"i will wait for the {s.weather} to pass",
    }
    return ends[mood]


_CORES = {"greeting": _greeting, "trade": _trade, "gossip": _gossip, "lost": _lost, "weather": _weather}


def pick(rule: Rule, rng: np.random.Generator) -> tuple[str, float]:
    """A sentence of a rule, and the logarithm of its probability."""
    if isinstance(rule, str):
        return rule, 0.0
    if isinstance(rule, list):
        text, chance = pick(rule[int(rng.integers(len(rule)))], rng)
        return text, chance - float(np.log(len(rule)))
    parts = [pick(part, rng) for part in rule]
    return " ".join(" ".join(text for text, _ in parts).split()), sum(chance for _, chance in parts)


def accepts(rule: Rule, sentence: str) -> bool:
    """Whether a rule can make a sentence."""
    return re.fullmatch(_pattern(rule), f"{sentence} ") is not None


def _pattern(rule: Rule) -> str:
    if isinstance(rule, str):
        return "".join(re.escape(word) + " " for word in rule.split())
    if isinstance(rule, list):
        return "(?:" + "|".join(_pattern(choice) for choice in rule) + ")"
    return "".join(_pattern(part) for part in rule)


def openings(scene: Scene) -> list[Scene]:
    """The scenes that could begin with the same prompt: who opens says what about."""
    thirds = [name for name in NAMES[:-1] if name not in (scene.first, scene.second)]
    told: dict[str, list[dict[str, object]]] = {
        "greeting": [{"time": time} for time in TIMES],
        "trade": [{"price": price} for price in range(1, len(NUMBERS) - 1)],
        "gossip": [
            {"third": third, "deed": deed, "place": place}
            for third in thirds
            for deed in DEEDS
            for place in PLACES
        ],
        "lost": [{"animal": animal} for animal in ANIMALS],
        "weather": [{"weather": weather} for weather in WEATHERS],
    }
    return [replace(scene, **values) for values in told[scene.topic]]  # type: ignore[arg-type]


def may_say(scene: Scene, turn: int, sentence: str) -> bool:
    """Whether the grammar could say a sentence in this turn, after what the network was told."""
    scenes = [scene] if turn else openings(scene)
    return any(accepts(rule(one, turn), sentence) for one in scenes)
