"""Events: who is called, in which order, how long, and what a listener that fails does to the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gameglue import App, Event, GameError, MonoBehaviour
from gameglue.scripting.fields import fields_of


class Hero(MonoBehaviour):
    """Says when it is hit."""

    on_hit = Event[[int]]()
    on_fall: Event[[]] = Event[[]]()
    lives: int = 3


class Bar(MonoBehaviour):
    """Writes down what it hears."""

    heard: list[int] = []

    def hear(self, damage: int) -> None:
        self.heard.append(damage)

    def fail(self, damage: int) -> None:
        raise RuntimeError(f"cannot take {damage}")

    async def hear_later(self, damage: int) -> None:
        await self.app.next_frame()
        self.heard.append(damage)


@pytest.fixture
def hero(app: App) -> Hero:
    return app.scene.create("hero").add_component(Hero)


@pytest.fixture
def bar(app: App) -> Bar:
    return app.scene.create("bar").add_component(Bar)


def test_each_instance_has_its_own_and_none_is_a_field(app: App, hero: Hero, bar: Bar) -> None:
    other = app.scene.create("other").add_component(Hero)
    assert hero.on_hit is hero.on_hit
    hero.on_hit.connect(bar.hear)
    other.on_hit.emit(1)
    hero.on_hit.emit(2)
    assert bar.heard == [2]
    assert list(fields_of(Hero)) == ["lives"]


def test_listeners_are_called_in_order_and_once_each(hero: Hero) -> None:
    heard: list[str] = []
    first = hero.on_hit.connect(lambda damage: heard.append(f"a{damage}"))
    hero.on_hit.connect(lambda damage: heard.append(f"b{damage}"))
    hero.on_hit.connect(first)
    assert len(hero.on_hit) == 2
    hero.on_hit.emit(1)
    assert hero.on_hit.disconnect(first)
    assert not hero.on_hit.disconnect(first)
    hero.on_hit.emit(2)
    hero.on_hit.disconnect_all()
    hero.on_hit.emit(3)
    assert heard == ["a1", "b1", "b2"]


def test_once(hero: Hero, bar: Bar) -> None:
    hero.on_hit.connect(bar.hear, once=True)
    hero.on_hit.emit(1)
    hero.on_hit.emit(2)
    assert bar.heard == [1]


def test_listeners_go_with_their_component(app: App, hero: Hero, bar: Bar) -> None:
    heard: list[int] = []
    hero.on_hit.connect(bar.hear)
    hero.on_hit.connect(heard.append, owner=bar)
    bar.enabled = False
    hero.on_hit.emit(1)
    assert (bar.heard, heard) == ([1], [1])
    bar.game_object.destroy()
    app.step(0.0)
    hero.on_hit.emit(2)
    assert (bar.heard, heard, len(hero.on_hit)) == ([1], [1], 0)


def test_changes_while_it_is_emitted(hero: Hero) -> None:
    heard: list[str] = []

    def first(damage: int) -> None:
        heard.append("first")
        hero.on_hit.disconnect(second)
        hero.on_hit.connect(third)

    def second(damage: int) -> None:
        heard.append("second")

    def third(damage: int) -> None:
        heard.append("third")

    hero.on_hit.connect(first)
    hero.on_hit.connect(second)
    hero.on_hit.emit(1)
    assert heard == ["first"]
    hero.on_hit.emit(1)
    assert heard == ["first", "first", "third"]


def test_a_failing_listener_is_reported_and_the_others_are_called(make_app: Callable[..., App]) -> None:
    app = make_app()
    hero = app.scene.create("hero").add_component(Hero)
    bad, good = (app.scene.create("bar").add_component(Bar) for _ in range(2))
    hero.on_hit.connect(bad.fail)
    hero.on_hit.connect(good.hear)
    hero.on_hit.emit(1)
    hero.on_hit.emit(2)
    assert good.heard == [1, 2]
    assert [str(e.error) for e in app.errors] == ["cannot take 1"]
    assert not bad.enabled


def test_what_belongs_to_no_component_fails_at_the_emitter(hero: Hero, bar: Bar) -> None:
    def fail(damage: int) -> None:
        raise ValueError("mine")

    hero.on_hit.connect(fail)
    hero.on_hit.connect(bar.hear)
    with pytest.raises(ValueError, match="mine"):
        hero.on_hit.emit(1)
    assert bar.heard == [1]


def test_listeners_and_waits_over_frames(app: App, hero: Hero, bar: Bar) -> None:
    got: list[object] = []

    async def wait() -> None:
        got.append(await hero.on_hit.next())

    hero.on_hit.connect(bar.hear_later)
    app.start_coroutine(wait())
    app.step(0.0)
    hero.on_hit.emit(7)
    assert (got, bar.heard) == ([], [])
    app.step(0.0)
    assert (got, bar.heard) == ([(7,)], [7])


def test_an_event_of_a_module(bar: Bar) -> None:
    happened = Event[[int]]()
    assert happened
    happened.connect(bar.hear)
    happened.emit(5)
    assert bar.heard == [5]


def test_wrong_use(hero: Hero) -> None:
    with pytest.raises(GameError, match=r"Hero\.on_hit declares an event that each Hero has .* hero\.on_hit"):
        Hero.on_hit.connect(print)
    with pytest.raises(GameError, match="connect needs something to call, got int"):
        hero.on_hit.connect(3)  # type: ignore[arg-type]

    async def later(damage: int) -> None: ...

    hero.on_hit.connect(later)
    with pytest.raises(GameError, match="belongs to no component: connect it with owner="):
        hero.on_hit.emit(1)
