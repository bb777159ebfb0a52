"""Components that need others: they are added, and cannot be taken away."""

from __future__ import annotations

import pytest

from gameglue import App, FieldError, MonoBehaviour, SceneError, require_component


class Body(MonoBehaviour):
    """What others need."""

    mass: float = 1.0

    def on_validate(self) -> None:
        if self.mass <= 0.0:
            raise FieldError(f"Body.mass must be above 0, got {self.mass}")


class HeavyBody(Body):
    """Takes the place of a body."""


class Voice(MonoBehaviour):
    """A second thing to need."""


@require_component(Body)
class Walker(MonoBehaviour):
    """Needs a body."""

    woke_after: bool = False

    def awake(self) -> None:
        body = self.get_component(Body)
        self.woke_after = body is not None and body._is_awake


class Singer(Walker):
    """Needs a body, by its base class, and a voice."""

    required_components = (Voice,)


class Left(MonoBehaviour):
    """Needs what needs it."""


class Right(MonoBehaviour):
    """The other one."""

    required_components = (Left,)


Left.required_components = (Right,)


def test_what_is_missing_is_added_before(app: App) -> None:
    hero = app.scene.create("hero", Singer)
    assert [type(c) for c in hero.components] == [Body, Voice, Singer]
    app.step(0.0)
    assert hero.get_components(Singer)[0].woke_after


def test_what_is_there_is_left(app: App) -> None:
    hero = app.scene.create("hero", HeavyBody, Walker)
    assert [type(c) for c in hero.components] == [HeavyBody, Walker]


def test_two_that_need_each_other(app: App) -> None:
    assert [type(c) for c in app.scene.create("pair", Left).components] == [Right, Left]


def test_what_is_needed_cannot_be_removed(app: App) -> None:
    hero = app.scene.create("hero", Walker)
    body, walker = hero.components
    with pytest.raises(SceneError, match=r"<Body of 'hero'> cannot be removed: Walker needs a Body; remove"):
        body.destroy()
    spare = hero.add_component(HeavyBody)
    body.destroy()
    app.step(0.0)
    assert hero.components == (walker, spare)
    walker.destroy()
    spare.destroy()  # its need goes in the same frame
    app.step(0.0)
    assert hero.components == ()


def test_the_whole_object_may_go(app: App) -> None:
    hero = app.scene.create("hero", Walker)
    hero.destroy(0.5)
    with pytest.raises(SceneError):
        hero.components[0].destroy()
    hero.components[0].destroy(0.6)
    for _ in range(3):
        app.step(0.2)
    assert hero.is_destroyed


def test_values_are_validated_where_they_are_given(app: App) -> None:
    hero = app.scene.create("hero")
    with pytest.raises(FieldError, match=r"Body\.mass must be above 0, got -1"):
        hero.add_component(Body, mass=-1.0)
    assert hero.components == ()


def test_only_components_can_be_needed() -> None:
    with pytest.raises(SceneError, match="require_component needs classes derived from MonoBehaviour, got 3"):
        require_component(3)  # type: ignore[arg-type]
