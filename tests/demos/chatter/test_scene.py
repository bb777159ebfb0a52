"""The demo as it is played: by itself, by keys, and against the same network in onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from assets.chatter.grammar import HOMES
from assets.chatter.model_card import Reader, measure
from demos.chatter.main import build
from demos.chatter.scenery import Scenery, overlap
from demos.chatter.village import NEAR, Person, Village
from demos.chatter.voices import Voice, Voices
from gameglue import InputScript, Page, Rect
from tests.demos.playing import Demo, Play, part, until

ASSETS = Path(__file__).parents[3] / "assets" / "chatter"


@pytest.fixture
def play(play_undrawn: Play) -> Play:
    """`play(script, **options)`: the demo in its first frame."""

    def start(script: InputScript | None = None, **options: object) -> Demo:
        app = play_undrawn(build, script, **{"seed": 4, **options})
        app.step()
        return app

    return start


@pytest.mark.long
def test_a_round_by_itself(play: Play) -> None:
    app = play(autoplay=True, seed=4)
    place = part(app, Village)
    until(app, lambda: any(said.startswith("traveller") for said in place.heard))
    until(app, lambda: len(place.heard) >= 8)
    metadata = app.tell()
    assert metadata["words"] > 60
    assert place.heard[0] in str(metadata["sentences"])


def test_the_player_asks_and_is_answered(play: Play) -> None:
    app = play()
    place = part(app, Village)
    finn, player = place.people[5], place.player
    player.transform.position = (finn.spot[0] + 60, finn.spot[1], 0.0)
    assert place.nearest() is finn
    script = InputScript().press("4", at=app.time.unscaled_time + 0.05)
    app.input.sources.append(script)
    until(app, lambda: len([said for said in place.heard if "raveller" in said or "finn" in said]) >= 2)
    assert player.partner is finn
    question, answer = [said for said in place.heard if said.startswith(("traveller", "finn"))][:2]
    assert question.startswith("traveller")
    # Only the hunter says where he lives, and the animal is the one that was asked for.
    assert HOMES["finn"] in answer.lower()
    animal = next(a for a in ("goat", "cat", "goose", "pig", "pony") if a in question)
    assert animal in answer


def test_moods_change_on_a_key(play: Play) -> None:
    app = play()
    place = part(app, Village)
    place.player.transform.position = (*place.people[5].spot, 0.0)
    before = place.people[5].mood
    app.input.sources.append(InputScript().press("m", at=app.time.unscaled_time + 0.02))
    app.run(frames=5)
    assert place.people[5].mood != before


def test_ten_speak_at_once_when_the_bell_rings(play: Play) -> None:
    app = play(InputScript().press("space", at=0.3))
    until(app, lambda: part(app, Voices).loudest == 10)
    # What they say now, and not what some of them begin when they have ended.
    voices = [person.voice for person in part(app, Village).people]
    until(app, lambda: not any(voice.is_talking for voice in voices))
    assert all(len(voice.said) >= 3 for voice in voices)


def test_the_player_walks_and_stays_in_the_village(play: Play) -> None:
    app = play(InputScript().press("left", at=0.1, hold=1.0).press("w", at=1.2, hold=4.0))
    app.run(frames=60)
    x, y = part(app, Village).player.spot
    assert x < 400
    assert y == 470
    app.run(frames=250)
    assert part(app, Village).player.spot[1] == 100
    assert part(app, Village).player.distance(part(app, Village).people[0]) > NEAR


def test_an_interrupted_talk_is_over_for_both(play: Play) -> None:
    app = play()
    place = part(app, Village)
    first, second, third = place.people[:3]
    place.begin(first, second, "trade")
    app.run(frames=10)
    place.begin(third, second, "gossip")
    assert first.partner is None
    assert first.talk is None
    assert second.partner is third
    until(app, lambda: second.partner is None)
    assert third.partner is None


@pytest.mark.parametrize("rows", [[0], [2, 7, 10]])
def test_words_are_those_of_the_network_one_row_at_a_time(play: Play, rows: list[int]) -> None:
    """Batch, idle rows and memory on the backend change nothing: a row alone in onnxruntime says the same."""
    app = play()
    part(app, Village).enabled = False
    talk = part(app, Voices)
    prompts = {}
    for row in rows:
        for _ in range(3 + 4 * row):
            app.step()
        prompts[row] = talk.vocabulary.prompt("anna", "jon", "angry", ("trade", "lost")[row % 2], [])
        talk.say(row, prompts[row])
    until(app, lambda: not any(voice.is_talking for voice in talk.voices))
    for row in rows:
        voice, reader = talk.voices[row], Reader(ASSETS / "chatter.onnx", 1)
        text = list(prompts[row])
        for place in range(len(voice.text)):
            following, _ = reader.step(np.array([text[place]]), place, voice.chances[place : place + 1])
            if place == len(text) - 1:
                text.append(int(following[0]))
        assert text == [*voice.text, talk.vocabulary.end]


def test_sentences_repeat_with_the_seed(play: Play) -> None:
    said = []
    for seed in (5, 5, 6):
        app = play(seed=seed)
        part(app, Village).enabled = False
        talk = part(app, Voices)
        texts = []
        for _ in range(3):
            voice = talk.say(3, talk.vocabulary.prompt("dirk", "ida", "gloomy", "gossip", []))
            until(app, lambda voice=voice: not voice.is_talking)  # type: ignore[misc]
            texts.append(voice.said)
        said.append(texts)
    assert said[0] == said[1]
    assert said[0] != said[2]


def test_bubbles_keep_clear_of_people_and_other_bubbles(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    app = play()
    place, scenery = part(app, Village), part(app, Scenery)
    draw, boxes = scenery._bubble, []

    def note(page: Page, person: Person, taken: list[Rect]) -> Rect:
        boxes.append((taken[: len(place.people) + 1], draw(page, person, taken)))
        return boxes[-1][1]

    monkeypatch.setattr(scenery, "_bubble", note)
    everybody = [*place.people, place.player]
    for person in everybody:
        person.voice = Voice(text=[0] * 20, is_talking=True)
    app.step()
    bodies, drawn = boxes[0][0], [box for _, box in boxes]
    assert len(drawn) == len(bodies) == len(everybody)
    for number, box in enumerate(drawn):
        assert 0 <= box.x < box.right <= 960
        assert 48 <= box.y < box.bottom <= 598
        covered = sum(overlap(box, other) for other in (*bodies, *drawn[:number]))
        assert covered < 0.15 * box.width * box.height, f"bubble {number} of {len(drawn)}"
        for person in place.people:
            x, y = person.spot
            name_and_mood = Rect(x - 46, y + 35, 92, 32)
            assert overlap(box, name_and_mood) == 0.0, f"bubble {number} on {person.name}'s mood"


def test_it_is_drawn_at_any_size(play: Play) -> None:
    app = play(autoplay=True)
    app.run(frames=30)
    assert part(app, Scenery)
    assert not app.errors


@pytest.mark.long
def test_the_network_speaks_as_its_card_says() -> None:
    """Roughly: fewer lines."""
    figures = measure(ASSETS, 150)
    assert figures.accepted > 0.85
    assert figures.perplexity < 1.15 * figures.grammar_perplexity
