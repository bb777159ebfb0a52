"""`gameglue profile GAME|SCRIPT.py`: the time of each frame, and what inference costs."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from engine import ModelLoader
from engine.base import instrumentation
from engine.base.errors import InputError
from gameglue.cli.backends import choice_of
from gameglue.cli.console import (
    CompileProgress,
    add_json_option,
    errors,
    output,
    paragraph,
    print_json,
    properties,
    table,
    title,
)
from gameglue.cli.demos import find_game
from gameglue.cli.models import find_model, random_input
from gameglue.cli.play import add_window_options, positive
from gameglue.graphics.surface import has_display
from gameglue.host import watchdog
from gameglue.host.app import App
from gameglue.host.garbage_collection import freeze_garbage_collector
from gameglue.host.play_options import PlayOptions
from gameglue.inference.backend_choice import BackendChoice, default_backend_choice, open_worker
from gameglue.profiling import FrameOverlay
from gameglue.profiling.html import write_html
from gameglue.profiling.in_flight import NetworkInFlight
from gameglue.profiling.layers import LayerTime
from gameglue.profiling.report import Spread
from gameglue.profiling.session import PAUSED, RUNNING, BlockingCalls, FramePlan, Profile, profile_frames
from gameglue.profiling.trace import write_trace

_ROOM = 130
_SHOWN = 10
_OVERLAY_FRAMES = 200
_TIMES = ("", "mean", "p50", "p99", "longest")

PAGES = tuple(page.title for page in FrameOverlay().pages)
"""The overlay's pages by name."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, line: str) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        name,
        help=line,
        description=paragraph(
            "Play a demo, or a script that calls app.run(), alternating inference on and off, and",
            "print the time of each frame phase, the frame times with and without inference, the time of",
            "each layer, memory, and blocking calls.",
        ),
        epilog="examples:\n  gameglue profile digits --backend cpu --frames 600 --headless\n"
        "  gameglue profile digits --trace digits.trace.json --html digits.html\n"
        "  gameglue profile digits --in-flight squeezenet.onnx\n"
        "  gameglue profile my_game.py",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "target", metavar="GAME|SCRIPT.py", help="a demo's name, a folder with a main.py, or a script"
    )
    add_window_options(parser)
    parser.add_argument(
        "--frames", type=positive, default=600, metavar="N", help="frames to measure. Default: 600"
    )
    parser.add_argument(
        "--block",
        type=positive,
        default=60,
        metavar="N",
        help="frames before switching between running and paused. Default: 60",
    )
    parser.add_argument(
        "--rate",
        type=float,
        default=60.0,
        metavar="F",
        help="frames per second; 0 runs unlimited. Default: 60",
    )
    parser.add_argument(
        "--in-flight",
        "--with",
        dest="in_flight",
        action="append",
        default=[],
        metavar="MODEL",
        help="also run this network continuously on the same backend; may be given several times",
    )
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write a trace for ui.perfetto.dev (JSON)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a report with plots, one file")
    parser.add_argument(
        "--overlay",
        choices=PAGES,
        help="overlay page to show in the screenshot, which is taken after the measurement",
    )
    parser.add_argument("--no-layers", action="store_true", help="do not measure layer times")
    parser.add_argument(
        "--no-blocking-counts",
        action="store_true",
        help="do not count blocking calls (counting adds about 1 µs per OpenGL call)",
    )
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Profile and print; 1 if a component raised or a call in a frame was blocking."""
    plan = FramePlan(arguments.frames, arguments.block, rate=arguments.rate)
    with ExitStack() as stack:
        # Before any context is made, so that all of them count.
        blocking = None if arguments.no_blocking_counts else stack.enter_context(BlockingCalls())
        # Devices that are made while somebody watches keep times.
        stack.enter_context(instrumentation.observing(instrumentation.Observer()))
        is_path = arguments.target.endswith(".py") or os.path.sep in arguments.target
        is_script = is_path and not Path(arguments.target).is_dir()
        play = _play_script if is_script else _play_demo
        profile = play(arguments, plan, blocking)
    if arguments.json:
        print_json(_as_data(profile))
    else:
        _print(output(_ROOM), profile)
    saved: list[tuple[str, object]] = []
    if arguments.trace is not None:
        path = write_trace(profile.recording, arguments.trace, profile.title)
        saved.append(("trace", f"{path.resolve()} (open it at ui.perfetto.dev)"))
    if arguments.html is not None:
        saved.append(("report", write_html(profile, arguments.html).resolve()))
    if arguments.screenshot is not None and arguments.screenshot.exists():
        saved.append(("screenshot", arguments.screenshot.resolve()))
    properties(errors() if arguments.json else output(), saved)
    return 1 if profile.metadata.get("component errors") or profile.blocking_calls else 0


def _play_demo(arguments: argparse.Namespace, plan: FramePlan, blocking: BlockingCalls | None) -> Profile:
    demo = find_game(arguments.target)
    build = demo.load()
    choice = choice_of(arguments)
    headless = arguments.headless or not has_display()
    with App(
        f"gameglue: {demo.name}",
        size=arguments.size,
        headless=True if headless else None,
        folder=demo.own_folder,
        seed=arguments.seed,
        watchdog=watchdog.SECONDS,
    ) as app:
        with CompileProgress() as progress:
            tell = build(app, PlayOptions(choice, True, arguments.seed, progress))
        profile = _profile(app, plan, arguments, blocking)
        if tell is not None:
            profile.metadata.update(tell())
    return profile


def _play_script(arguments: argparse.Namespace, plan: FramePlan, blocking: BlockingCalls | None) -> Profile:
    script = Path(arguments.target)
    if not script.is_file():
        raise InputError(f"there is no script {arguments.target!r}; a demo is given by its name alone")
    found: list[Profile] = []

    def instead(app: App, frames: int | None) -> None:
        found.append(_profile(app, plan, arguments, blocking))
        app.quit()

    with _instead_of_run(instead) as stack:
        if arguments.headless:
            stack.enter_context(_no_window())
        before, sys.argv = sys.argv, [str(script)]
        sys.path.insert(0, str(script.resolve().parent))
        try:
            runpy.run_path(str(script), run_name="__main__")
        except SystemExit:
            pass
        finally:
            sys.argv = before
            sys.path.remove(str(script.resolve().parent))
    if not found:
        raise InputError(f"{script} ended without calling app.run(), which is what is profiled")
    return found[0]


@contextmanager
def _no_window() -> Iterator[None]:
    """A block in which apps that may have a window play without."""
    before = os.environ.get("SDL_VIDEODRIVER")
    os.environ["SDL_VIDEODRIVER"] = "dummy"
    try:
        yield
    finally:
        if before is None:
            del os.environ["SDL_VIDEODRIVER"]
        else:
            os.environ["SDL_VIDEODRIVER"] = before


def _instead_of_run(function: Callable[[App, int | None], None]) -> ExitStack:
    """Within a block, `App.run` calls `function` once for each app."""
    stack = ExitStack()
    before, App.runner = App.runner, function

    def restore() -> None:
        App.runner = before

    stack.callback(restore)
    return stack


def _profile(
    app: App, plan: FramePlan, arguments: argparse.Namespace, blocking: BlockingCalls | None
) -> Profile:
    """Measure an app together with the requested networks."""
    choice = choice_of(arguments) or default_backend_choice(app.ctx is not None)[0]
    others = [_network(app, name, choice) for name in arguments.in_flight]
    if others:
        # Their first schedules, which plan and allocate, are no part of what is measured.
        plan = replace(plan, warm_up=plan.warm_up + 20)
    with freeze_garbage_collector():
        profile = profile_frames(app, plan, blocking=blocking, layers=not arguments.no_layers)
    for network in others:
        network.close()
    profile.metadata = dict(app.report().metadata)
    if others:
        listed = (f"{name}: {n.answers} answers" for name, n in zip(arguments.in_flight, others, strict=True))
        profile.metadata["in flight"] = ", ".join(listed)
    if arguments.screenshot is not None:
        _take_picture(app, arguments.screenshot, arguments.overlay)
    return profile


def _take_picture(app: App, path: Path, page: str | None) -> None:
    if page is not None:
        app.overlay.show(app)
        app.overlay.page = PAGES.index(page)
        for _ in range(_OVERLAY_FRAMES):
            app.step()
            time.sleep(0.5 / app.target_frame_rate)
        app.overlay.show(app, False)
    app.graphics.save_picture(path)


def _network(app: App, name: str, choice: BackendChoice) -> NetworkInFlight:
    with CompileProgress(f"preparing {Path(name).name}") as progress:
        worker = open_worker(ModelLoader.load(find_model(name)), choice, progress)
    rng = np.random.default_rng(0)
    inputs: dict[str, Any] = {item.name: random_input(item, rng, {}) for item in worker.model.inputs}
    return NetworkInFlight(app, worker, inputs)


# Printing


def _as_data(profile: Profile) -> dict[str, object]:
    """What is printed, as data; times in milliseconds."""

    def spreads(kind: str) -> dict[str, Spread]:
        names = profile.recording.names(kind)
        return {name: Spread.of(profile.recording.times(kind, name)) for name in names}

    def layers(times: Iterable[LayerTime]) -> list[dict[str, object]]:
        return [
            {"layer": x.layer, "operator": x.op_type, "kernels": x.kernels, "ms": x.seconds * 1e3}
            for x in times
        ]

    return {
        "title": profile.title,
        "frames": len(profile.work),
        "rate": profile.rate,
        "metadata": profile.metadata,
        "frame times": Spread.of(profile.work),
        "with inference": profile.spread(RUNNING),
        "without inference": profile.spread(PAUSED),
        "difference of p99": profile.difference_p99,
        "noise of that": profile.noise_p99,
        "blocking calls": profile.blocking if profile.counted else None,
        "phases": spreads("phases"),
        "hooks": spreads("hooks"),
        "workers": [
            {
                "worker": times.label,
                "schedules": times.schedules,
                "this thread": times.calling_ms,
                "jobs": times.per_schedule_ms("job"),
                "commands": times.per_schedule_ms("commands"),
                "answer after": times.mean_ms("readback"),
                "memory": profile.memory.get(times.label),
            }
            for times in profile.workers
        ],
        "layers": {label: layers(times) for label, times in profile.layers.items()},
    }


def _print(out: Console, profile: Profile) -> None:
    work = Spread.of(profile.work)
    pace = f"{profile.rate:.0f} a second" if profile.rate else "without a pause between them"
    properties(
        out,
        [
            ("profiled", f"{profile.title}, {len(profile.work)} frames, {pace}"),
            ("drawn by", profile.metadata.get("renderer", "none")),
            *((str(k), v) for k, v in profile.metadata.items() if k in ("backend", "in flight")),
        ],
    )
    title(out, "frame times, ms")
    rows = [_spread_row("all frames", len(profile.work), work)]
    rows += [_spread_row(side, len(profile.sides[side]), profile.spread(side)) for side in (RUNNING, PAUSED)]
    columns = ("", "frames", "mean", "p50", "p95", "p99", "longest")
    out.print(table(columns, rows, right=columns[1:]))
    if all(len(profile.sides[side]) for side in (RUNNING, PAUSED)):
        with_, without = profile.spread(RUNNING).p99, profile.spread(PAUSED).p99
        out.print(f"p99 with inference {with_:.2f} ms, without {without:.2f} ms: {profile.difference_text}")
        between = [Spread.of(profile.intervals[side]) for side in (RUNNING, PAUSED)]
        between_frames = [f"p50 {spread.median:.1f}, p99 {spread.p99:.1f}" for spread in between]
        out.print(f"from frame to frame, ms: with inference {between_frames[0]}, without {between_frames[1]}")
    if profile.limit:
        out.print(profile.limit)
    if profile.counted:
        out.print(f"blocking calls: {profile.blocking_calls}")
        if profile.blocking:
            properties(out, profile.blocking.most_common(), indent=2)
    for bad in profile.recording.nan_alarm.found.values():
        out.print(f"not a number: {bad}")
    _print_shares(out, profile)
    _print_workers(out, profile)
    _print_layers(out, profile)


def _spread_row(name: str, count: int, spread: Spread) -> list[str]:
    times = (spread.mean, spread.median, spread.p95, spread.p99, spread.max)
    return [name, str(count), *(f"{value:.2f}" for value in times)]


def _print_shares(out: Console, profile: Profile) -> None:
    """Phases and hooks, the dearest first."""
    for kind, heading in (("phases", "phases of the frame, ms"), ("hooks", "hooks, ms a frame")):
        names = profile.recording.names(kind)[:_SHOWN]
        if names:
            title(out, heading)
            rows = [_times_row(name, Spread.of(profile.recording.times(kind, name))) for name in names]
            out.print(table(_TIMES, rows, right=_TIMES[1:]))
    drawn = profile.recording.gpu_phases
    if drawn:
        title(out, "drawn by the GPU, ms")
        rows = [_times_row(name, Spread.of(ring.latest())) for name, ring in drawn.items()]
        out.print(table(_TIMES, rows, right=_TIMES[1:]))


def _times_row(name: str, spread: Spread) -> list[str]:
    values = (spread.mean, spread.median, spread.p99, spread.max)
    return [name, *(f"{value:.3f}" for value in values)]


def _print_workers(out: Console, profile: Profile) -> None:
    if not profile.workers:
        return
    title(out, "workers, ms for each schedule")
    rows = []
    for times in profile.workers:
        values = (times.calling_ms, times.per_schedule_ms("job"), times.per_schedule_ms("commands"))
        cells = (_ms(value) for value in (*values, times.mean_ms("readback")))
        memory = profile.memory.get(times.label)
        rows.append([times.label, str(times.schedules), *cells, "" if memory is None else str(memory)])
    columns = ("worker", "schedules", "this thread", "jobs", "GPU", "answer after", "memory")
    out.print(table(columns, rows, right=columns[1:6]))


def _print_layers(out: Console, profile: Profile) -> None:
    for label, layers in profile.layers.items():
        on_cpu = profile.layers_on_cpu.get(label, {})
        is_gpu = bool(on_cpu) or "cpu" not in label.rpartition(" on ")[2]
        title(out, f"layers of {label}, ms")
        rows = []
        for item in sorted(layers, key=lambda item: -item.seconds)[:_SHOWN]:
            cpu = on_cpu.get(item.layer) if is_gpu else item.seconds
            cells = [_ms(None if cpu is None else cpu * 1e3)]
            cells += [_ms(item.seconds * 1e3)] if is_gpu else []
            rows.append([item.layer, item.op_type, "+".join(item.kernels), *cells])
        columns = ("layer", "operator", "kernels", "CPU", *(("GPU",) if is_gpu else ()))
        out.print(table(columns, rows, right=columns[3:]))
        total = sum(item.seconds for item in layers)
        left = f", {_SHOWN} shown" if len(layers) > _SHOWN else ""
        out.print(f"{len(layers)} layers{left}: {total * 1e3:.3f} ms")


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
