"""Demos as tests play them: where no component may raise, with an end to every wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from gameglue import App, BackendChoice, BackendType, InputScript, MonoBehaviour, PlayOptions
from gameglue.host.play_options import Build

Part = TypeVar("Part", bound=MonoBehaviour)


class Demo(App):
    """A demo's app, and what the demo tells for the report."""

    tell: Callable[[], Mapping[str, Any]]


Play = Callable[..., Demo]
"""What `playing` yields, or a test's own fixture on top of it, which knows the demo's `build`."""


@contextmanager
def playing(**settings: Any) -> Iterator[Play]:
    """`play(build, script, **options)` for apps with these settings, which are disposed at the end.

    script: the input. kind: the backend, the CPU if not told otherwise. size: of the picture in pixels.
    seed: the app's, which the demo is told, too. deterministic: as of `App`. More options are `PlayOptions`'.
    """
    apps: list[App] = []

    def play(
        build: Build,
        script: InputScript | None = None,
        *,
        kind: BackendType = BackendType.CPU,
        size: tuple[int, int] = (960, 640),
        seed: int | None = 1,
        deterministic: bool = False,
        **options: Any,
    ) -> Demo:
        app = Demo(
            "test",
            size=size,
            input_source=script,
            on_error="raise",
            seed=seed,
            deterministic=deterministic,
            **settings,
        )
        apps.append(app)
        tell = build(app, PlayOptions(choice=BackendChoice(kind), seed=seed, **options))
        assert tell is not None, "the demo tells nothing"
        app.tell = tell
        return app

    try:
        yield play
    finally:
        for app in apps:
            app.dispose()


def part(app: App, kind: type[Part]) -> Part:
    """The demo's component of a class."""
    found = app.scene.find_component(kind)
    assert found is not None, f"no {kind.__name__} in the scene"
    return found


def until(app: App, is_done: Callable[[], bool], seconds: float = 120.0) -> None:
    """Play until something is so. Frames that draw nothing leave job threads and loading time to work."""
    end = time.perf_counter() + seconds
    while not is_done():
        assert time.perf_counter() < end, f"not within {seconds} s"
        app.step()
        time.sleep(0.001)
