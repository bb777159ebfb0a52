"""Prompts and sentences, the grammar, and what of it the vocabulary knows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from assets.chatter import grammar, text
from demos.chatter import words
from demos.chatter.village import PEOPLE

ASSETS = Path(__file__).parents[3] / "assets" / "chatter"


@pytest.fixture(scope="module")
def vocabulary() -> words.Vocabulary:
    return words.Vocabulary(ASSETS / "words.txt")


def test_game_and_training_speak_of_the_same(vocabulary: words.Vocabulary) -> None:
    assert tuple(vocabulary.words) == text.Vocabulary.of_grammar().words
    assert (words.MOODS, words.TOPICS, words.ROOM) == (grammar.MOODS, grammar.TOPICS, text.ROOM)
    assert (*PEOPLE, "traveller") == grammar.NAMES
    assert vocabulary.words[vocabulary.end] == text.END


def test_a_prompt_is_that_of_training(vocabulary: words.Vocabulary) -> None:
    trained = text.Vocabulary.of_grammar()
    for line in text.lines(60, 5):
        told = text.prompt(line.scene, line.turn, line.heard)
        scene, turn = line.scene, line.turn
        asked = vocabulary.prompt(
            scene.speaker(turn),
            scene.listener(turn),
            scene.mood(turn),
            scene.topic,
            trained.encode(line.heard),
        )
        assert asked == trained.encode(told)
        assert len(asked) + len(line.said.split()) < words.ROOM


def test_sentences_are_written_as_people_do(vocabulary: words.Vocabulary) -> None:
    numbers = text.Vocabulary.of_grammar().encode("ah , good morning anna ! now i love the rain .")
    assert vocabulary.sentence(numbers) == "Ah, good morning Anna! Now I love the rain."
    assert vocabulary.sentence([]) == ""


def test_the_grammar_accepts_what_it_makes_and_nothing_else() -> None:
    rng = np.random.default_rng(1)
    for _ in range(100):
        scene = grammar.random_scene(rng)
        for turn in range(grammar.TURNS):
            rule = grammar.rule(scene, turn)
            said, chance = grammar.pick(rule, rng)
            assert grammar.accepts(rule, said)
            assert -12 < chance < 0
            assert not grammar.accepts(rule, f"{said} .")
            assert not grammar.accepts(rule, " ".join(said.split()[1:]))


def test_chances_of_a_rule_add_up_to_one() -> None:
    rule: grammar.Rule = (["a", "b"], "c", ["d", ("e", ["f", "g", "h"])])
    rng = np.random.default_rng(0)
    found = dict(grammar.pick(rule, rng) for _ in range(500))
    assert len(found) == 8
    assert np.exp(list(found.values())).sum() == pytest.approx(1.0)


def test_held_out_scenes_are_never_in_the_training_texts() -> None:
    held_out = {
        (s.first, s.second, s.topic) for s in (line.scene for line in text.lines(300, 2, held_out=True))
    }
    trained = {(s.first, s.second, s.topic) for s in (line.scene for line in text.lines(3000, 3))}
    assert len(held_out) > 20
    assert not held_out & trained
