"""A component that raises is logged and disabled, and the game goes on; misuse of the host is named."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator
from typing import Any

import pytest

from gameglue import App, FrameError, MonoBehaviour
from gameglue.errors import FieldError, GameError


class Counter(MonoBehaviour):
    """Counts its updates."""

    count = 0

    def update(self) -> None:
        self.count += 1


def raising(hook: str) -> type[MonoBehaviour]:
    def raise_it(self: MonoBehaviour) -> None:
        raise ZeroDivisionError(f"in {hook}")

    return type("Broken", (MonoBehaviour,), {hook: raise_it})


@pytest.mark.parametrize(
    "hook", ["awake", "on_enable", "start", "fixed_update", "update", "late_update", "on_gui"]
)
def test_a_raising_hook_is_logged_with_its_traceback_and_the_others_go_on(
    make_app: Callable[..., App], caplog: pytest.LogCaptureFixture, hook: str
) -> None:
    app = make_app()
    before = app.scene.create("before").add_component(Counter)
    broken = app.scene.create("culprit").add_component(raising(hook))
    after = app.scene.create("after").add_component(Counter)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            app.step(0.02)
    assert (before.count, after.count) == (3, 3)
    assert not broken.enabled
    assert len(app.errors) == 1, "a disabled component must not raise again"
    assert (app.errors[0].component, app.errors[0].where) == (broken, hook)
    assert f"<Broken of 'culprit'> raised in {hook} and is disabled" in caplog.text
    assert "Traceback" in caplog.text
    assert f"ZeroDivisionError: in {hook}" in caplog.text


def test_several_raising_neighbours_in_one_walk(make_app: Callable[..., App]) -> None:
    app = make_app()
    counters = []
    for i in range(5):
        app.scene.create("broken").add_component(raising("update"))
        counters.append(app.scene.create(f"fine {i}").add_component(Counter))
    app.step(0.0)
    assert [c.count for c in counters] == [1] * 5
    assert len(app.errors) == 5


def test_a_failed_component_gets_on_disable_and_later_on_destroy(make_app: Callable[..., App]) -> None:
    log: list[str] = []

    class Broken(MonoBehaviour):
        def update(self) -> None:
            raise ValueError("broken")

        def on_disable(self) -> None:
            log.append("on_disable")
            raise ValueError("broken too")

        def on_destroy(self) -> None:
            log.append("on_destroy")

    app = make_app()
    app.scene.create("broken", Broken)
    app.step(0.0)
    app.dispose()
    assert log == ["on_disable", "on_destroy"]
    assert [e.where for e in app.errors] == ["update", "on_disable"]


def test_a_failed_component_can_be_enabled_again(make_app: Callable[..., App]) -> None:
    class Once(MonoBehaviour):
        calls = 0

        def update(self) -> None:
            self.calls += 1
            if self.calls == 1:
                raise ValueError("the first time")

    app = make_app()
    component = app.scene.create("once").add_component(Once)
    app.step(0.0)
    component.enabled = True
    app.step(0.0)
    assert component.calls == 2


def test_a_raising_coroutine_disables_its_component_and_ends_its_other_coroutines(
    make_app: Callable[..., App],
) -> None:
    log: list[str] = []

    class Broken(MonoBehaviour):
        def start(self) -> None:
            self.start_coroutine(self.other())
            self.start_coroutine(self.fails())

        def other(self) -> Generator[Any, Any, Any]:
            try:
                while True:
                    log.append("other")
                    yield
            finally:
                log.append("closed")

        def fails(self) -> Generator[Any, Any, Any]:
            yield
            raise ValueError("later")

    app = make_app()
    component = app.scene.create("broken").add_component(Broken)
    for _ in range(3):
        app.step(0.0)
    assert not component.enabled
    assert app.errors[0].where.endswith("Broken.fails")
    assert log == ["other", "other", "closed"]


def test_on_error_raise_lets_the_exception_out(make_app: Callable[..., App]) -> None:
    app = make_app(on_error="raise")
    app.scene.create("broken").add_component(raising("update"))
    with pytest.raises(ZeroDivisionError, match="in update"):
        app.step(0.0)
    app.step(0.0)


def test_two_apps_in_one_process_share_nothing(make_app: Callable[..., App]) -> None:
    first, second = make_app(), make_app()
    a = first.scene.create("a").add_component(Counter)
    b = second.scene.create("b").add_component(Counter)
    first.scene.create("broken").add_component(raising("update"))
    first.time.time_scale = 0.5
    for _ in range(2):
        first.step(0.1)
    second.step(0.1)
    assert (a.count, b.count) == (2, 1)
    assert (len(first.errors), len(second.errors)) == (1, 0)
    assert second.time.time == pytest.approx(0.1)
    assert first.scene.find("b") is None
    first.dispose()
    second.step(0.1)
    assert b.count == 2
    assert b.app is second


def test_an_app_that_has_ended_says_so(make_app: Callable[..., App]) -> None:
    app = make_app()
    app.dispose()
    app.dispose()
    with pytest.raises(FrameError, match="has ended; make a new App"):
        app.step()


def test_step_within_a_frame_is_refused(app: App) -> None:
    class Nested(MonoBehaviour):
        def update(self) -> None:
            self.app.step()

    app.scene.create("nested", Nested)
    with pytest.raises(FrameError, match="from within a frame"):
        app.step()


def test_another_thread_is_refused(app: App) -> None:
    caught: list[Exception] = []

    def work() -> None:
        try:
            app.step()
        except FrameError as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert "on the thread that made it" in str(caught[0])


def test_ctrl_c_ends_the_game_cleanly(make_app: Callable[..., App], caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []

    class Interrupted(MonoBehaviour):
        def update(self) -> None:
            raise KeyboardInterrupt

        def on_application_quit(self) -> None:
            log.append("on_application_quit")

        def on_destroy(self) -> None:
            log.append("on_destroy")

    app = make_app()
    app.scene.create("a", Interrupted)
    app.run()
    assert log == ["on_application_quit", "on_destroy"]
    assert "interrupted in frame 1" in caplog.text


def test_wrong_uses_of_components_and_coroutines(app: App) -> None:
    owner = app.scene.create("owner")
    with pytest.raises(FieldError, match="needs a class derived from MonoBehaviour, got <class 'int'>"):
        owner.add_component(int)  # type: ignore[type-var]
    with pytest.raises(AttributeError, match="make it with game_object.add_component"):
        _ = Counter().app
    with pytest.raises(GameError, match=r"got function; call it"):
        app.start_coroutine(lambda: None)  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="has no attribute 'speeed'"):
        _ = owner.add_component(Counter).speeed  # type: ignore[attr-defined]


def test_yielding_something_odd_is_explained(make_app: Callable[..., App]) -> None:
    app = make_app()

    class Odd(MonoBehaviour):
        def start(self) -> Generator[Any, Any, Any]:
            yield 0.5

    app.scene.create("odd", Odd)
    app.step(0.0)
    assert "yielded float" in str(app.errors[0].error)
    assert "write WaitForSeconds(0.5)" in str(app.errors[0].error)
