"""Generators and `async def`: when they go on, what they are given, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any

import pytest

from gameglue import (
    App,
    Coroutine,
    MonoBehaviour,
    WaitForEndOfFrame,
    WaitForFixedUpdate,
    WaitForSeconds,
    WaitForSecondsRealtime,
    WaitUntil,
    WaitWhile,
    next_frame,
    seconds,
)


def frames_until_done(app: App, coroutine: Coroutine, dt: float = 0.1, limit: int = 50) -> int:
    for frame in range(limit):
        if coroutine.is_done():
            return frame
        app.step(dt)
    pytest.fail(f"still waiting after {limit} frames")


def waiting(instruction: object) -> Generator[Any, Any, Any]:
    yield instruction


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        (None, 1),
        (WaitForSeconds(0.25), 3),
        (WaitForSeconds(0.2), 2),
        (WaitForSeconds(0.0), 1),
        (WaitForSecondsRealtime(0.25), 3),
        (WaitForEndOfFrame(), 1),
        (WaitForFixedUpdate(), 1),
    ],
)
def test_how_many_frames_a_wait_takes(app: App, instruction: object, expected: int) -> None:
    assert frames_until_done(app, app.start_coroutine(waiting(instruction))) == expected


def test_game_time_waits_follow_scale_and_pause_and_real_time_waits_do_not(app: App) -> None:
    app.time.time_scale = 0.5
    game, real = (
        app.start_coroutine(waiting(seconds(0.2))),
        app.start_coroutine(waiting(WaitForSecondsRealtime(0.2))),
    )
    assert frames_until_done(app, real) == 2
    assert frames_until_done(app, game) == 2
    app.time.paused = True
    game, real = (
        app.start_coroutine(waiting(seconds(0.1))),
        app.start_coroutine(waiting(WaitForSecondsRealtime(0.1))),
    )
    assert frames_until_done(app, real) == 1
    for _ in range(5):
        app.step(0.1)
    assert not game.is_done()


def test_one_instruction_may_serve_many_coroutines(app: App) -> None:
    """Fixed waits shared by several coroutines must not share their deadlines."""
    pause = WaitForSeconds(0.2)
    first = app.start_coroutine(waiting(pause))
    app.step(0.1)
    second = app.start_coroutine(waiting(pause))
    app.step(0.1)
    assert first.is_done()
    assert not second.is_done()


def test_conditions(app: App) -> None:
    values = {"open": False}
    until = app.start_coroutine(waiting(WaitUntil(lambda: values["open"])))
    during = app.start_coroutine(waiting(WaitWhile(lambda: not values["open"])))
    app.step(0.1)
    assert not until.is_done()
    assert not during.is_done()
    values["open"] = True
    app.step(0.1)
    assert until.is_done()
    assert during.is_done()


def test_a_condition_that_always_holds_does_not_hang_the_frame(app: App) -> None:
    rounds = 0

    def loop() -> Generator[Any, Any, Any]:
        nonlocal rounds
        while True:
            yield WaitUntil(lambda: True)
            rounds += 1

    app.start_coroutine(loop())
    for _ in range(3):
        app.step(0.1)
    assert rounds == 3


def test_nested_generators_return_values(app: App) -> None:
    seen: list[object] = []

    def inner() -> Generator[Any, Any, Any]:
        yield
        return 7

    def outer() -> Generator[Any, Any, Any]:
        got = yield inner()
        seen.append(got)
        other = app.start_coroutine(inner())
        got = yield other
        seen.append(got)
        return "end"

    coroutine = app.start_coroutine(outer())
    frames_until_done(app, coroutine)
    assert seen == [7, 7]
    assert coroutine.result() == "end"


def test_an_exception_travels_to_the_one_who_waits(app: App) -> None:
    caught: list[str] = []

    def inner() -> Generator[Any, Any, Any]:
        yield
        raise KeyError("inner")

    def outer() -> Generator[Any, Any, Any]:
        try:
            yield inner()
        except KeyError as error:
            caught.append(str(error))
        yield

    frames_until_done(app, app.start_coroutine(outer()))
    assert caught == ["'inner'"]


def test_stopping_runs_finally_blocks(app: App) -> None:
    log: list[str] = []

    def work() -> Generator[Any, Any, Any]:
        try:
            while True:
                yield
        finally:
            log.append("closed")

    coroutine = app.start_coroutine(work())
    app.step(0.1)
    coroutine.stop()
    assert log == ["closed"]
    assert coroutine.is_done()
    app.step(0.1)
    assert len(app._coroutines) == 0


def test_a_coroutine_may_stop_itself(app: App) -> None:
    log: list[str] = []

    class Quitter(MonoBehaviour):
        def start(self) -> None:
            self.handle = self.start_coroutine(self.work())

        def work(self) -> Generator[Any, Any, Any]:
            try:
                yield
                self.stop_coroutine(self.handle)
                log.append("still running to the next yield")
                yield
                log.append("never")
            finally:
                log.append("closed")

    app.scene.create("quitter", Quitter)
    for _ in range(3):
        app.step(0.1)
    assert log == ["still running to the next yield", "closed"]


class Handle:
    """Something that becomes done, in one of the ways that are understood."""

    def __init__(self) -> None:
        self.ready = False


class ReadbackHandle(Handle):
    def is_readback_request_done(self) -> bool:
        return self.ready


class MethodHandle(Handle):
    def is_done(self) -> bool:
        return self.ready

    def result(self) -> str:
        return "the result"


class PropertyHandle(Handle):
    @property
    def is_done(self) -> bool:
        return self.ready


class FutureHandle(Handle):
    def done(self) -> bool:
        return self.ready


@pytest.mark.parametrize("kind", [ReadbackHandle, MethodHandle, PropertyHandle, FutureHandle])
def test_anything_that_can_be_asked_whether_it_is_done(app: App, kind: type[Handle]) -> None:
    handle = kind()
    got: list[object] = []

    def with_yield() -> Generator[Any, Any, Any]:
        got.append((yield handle))

    async def with_await() -> None:
        got.append(await app.until_done(handle))

    app.start_coroutine(with_yield())
    app.start_coroutine(with_await())
    app.step(0.1)
    assert got == []
    handle.ready = True
    app.step(0.1)
    assert got == ["the result" if kind is MethodHandle else handle] * 2


def test_handles_are_delivered_before_update(app: App) -> None:
    log: list[str] = []
    handle = ReadbackHandle()

    class Reader(MonoBehaviour):
        async def start(self) -> None:
            await self.app.until_done(handle)
            log.append("delivered")

        def update(self) -> None:
            log.append("update")

    app.scene.create("reader", Reader)
    app.step(0.1)
    handle.ready = True
    app.step(0.1)
    assert log == ["update", "delivered", "update"]


def test_async_start_and_awaits_of_all_kinds(app: App) -> None:
    log: list[tuple[str, int]] = []

    class Story(MonoBehaviour):
        async def start(self) -> None:
            self.note("start")
            await self.app.next_frame()
            self.note("next frame")
            await seconds(0.2)
            self.note("seconds")
            await WaitForEndOfFrame()
            self.note("end")
            log.append((await self.inner(), self.time.frame_count))
            other = self.start_coroutine(self.inner())
            log.append((str(await other), self.time.frame_count))

        async def inner(self) -> str:
            await next_frame()
            return "inner"

        def note(self, what: str) -> None:
            log.append((what, self.time.frame_count))

    app.scene.create("story", Story)
    for _ in range(8):
        app.step(0.1)
    assert log[:4] == [("start", 1), ("next frame", 1), ("seconds", 3), ("end", 3)]
    assert [what for what, _ in log[4:]] == ["inner", "inner"]


def test_an_async_update_does_not_overlap_itself(app: App) -> None:
    starts: list[int] = []

    class Slow(MonoBehaviour):
        async def update(self) -> None:
            starts.append(self.time.frame_count)
            await seconds(0.2)

    app.scene.create("slow", Slow)
    for _ in range(7):
        app.step(0.1)
    assert starts == [1, 4, 7]


def test_a_generator_may_be_a_hook(app: App) -> None:
    log: list[int] = []

    class Blinker(MonoBehaviour):
        def start(self) -> Generator[Any, Any, Any]:
            for i in range(3):
                log.append(i)
                yield seconds(0.1)

    app.scene.create("blinker", Blinker)
    for _ in range(5):
        app.step(0.1)
    assert log == [0, 1, 2]


def test_coroutines_end_with_their_component(app: App) -> None:
    log: list[str] = []

    class Worker(MonoBehaviour):
        async def start(self) -> None:
            try:
                while True:
                    await next_frame()
            finally:
                log.append("closed")

    owner = app.scene.create("worker", Worker)
    app.step(0.1)
    owner.destroy()
    app.step(0.1)
    assert log == ["closed"]


def test_a_disabled_component_keeps_its_coroutines(app: App) -> None:
    log: list[str] = []

    class Worker(MonoBehaviour):
        def start(self) -> Generator[Any, Any, Any]:
            yield seconds(0.1)
            log.append("went on")

    component = app.scene.create("worker").add_component(Worker)
    app.step(0.05)
    component.enabled = False
    app.step(0.1)
    assert log == ["went on"]


def test_stop_all_coroutines_stops_only_ones_own(app: App) -> None:
    class Owner(MonoBehaviour):
        def start(self) -> None:
            self.mine = self.start_coroutine(waiting(seconds(9)))

    first = app.scene.create("first").add_component(Owner)
    second = app.scene.create("second").add_component(Owner)
    app.step(0.1)
    first.stop_all_coroutines()
    assert first.mine.is_done()
    assert not second.mine.is_done()


def test_asyncio_in_a_hook_is_reported_as_an_error_of_the_component(make_app: Callable[..., App]) -> None:
    app = make_app()

    class Wrong(MonoBehaviour):
        async def start(self) -> None:
            await asyncio.sleep(0.1)

    component = app.scene.create("wrong").add_component(Wrong)
    app.step(0.1)
    assert not component.enabled
    assert isinstance(app.errors[0].error.__cause__, RuntimeError)


def test_the_same_awaitable_works_in_an_asyncio_loop_and_in_the_host(app: App) -> None:
    """A bare `yield` in `__await__` is what asyncio takes as "again in the next round"; the host does too."""

    class Polled:
        def __init__(self) -> None:
            self.left = 3

        def __await__(self) -> Generator[Any, Any, Any]:
            while self.left:
                self.left -= 1
                yield
            return "value"

    async def use(polled: Polled) -> object:
        return await polled

    coroutine = app.start_coroutine(use(Polled()))
    assert frames_until_done(app, coroutine) == 3
    assert coroutine.result() == "value"
    assert asyncio.run(use(Polled())) == "value"


def test_async_generators_are_refused(app: App) -> None:
    async def wrong() -> AsyncIterator[int]:
        yield 1

    with pytest.raises(Exception, match="needs a generator or coroutine, got async_generator"):
        app.start_coroutine(wrong())  # type: ignore[arg-type]
