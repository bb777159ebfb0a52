"""`gameglue play GAME`: play in a window, or without one and leave a screenshot and a report."""

from __future__ import annotations

import argparse
import logging
import re
import secrets
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import cast

from engine import BackendType
from engine.backends.table import DeviceName
from engine.base.errors import EngineError, InputError
from gameglue.cli import INTERRUPTED
from gameglue.cli.animation import SECONDS, Animation
from gameglue.cli.backends import add_backend_options, choice_of
from gameglue.cli.console import CompileProgress, output, paragraph, properties
from gameglue.cli.demos import Demo, find_game
from gameglue.graphics.surface import has_display
from gameglue.host import watchdog
from gameglue.host.app import App
from gameglue.host.play_options import PlayOptions
from gameglue.inference.backend_choice import BackendChoice, default_backend_choice
from gameglue.input import InputRecording
from gameglue.profiling import FrameReport

HEADLESS_FRAMES = 600
"""How many frames a run without a window has, if nothing else is said: ten seconds of the game."""

DEFAULT_SIZE = (960, 640)
FRAMES_PER_SECOND = 60.0
"""Frames of game time in a second: without a window, every frame stands for as long."""


def window_size(text: str) -> tuple[int, int]:
    """`960x640` as numbers of pixels."""
    match = re.fullmatch(r"(\d{2,5})[xX](\d{2,5})", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"a size is written as WIDTHxHEIGHT, such as 960x640, not {text!r}")
    return int(match[1]), int(match[2])


def positive(text: str) -> int:
    """Parse a positive integer."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"needs a whole number above 0, got {text!r}")
    return int(text)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, line: str) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        name,
        help=line,
        description=paragraph(
            "Play a demo or a game. With a display it opens a window and runs until you close it.",
            f"Without one it autoplays for {HEADLESS_FRAMES} frames, and saves a screenshot and a",
            "report in ./out.",
        ),
        epilog="examples:\n  gameglue play digits\n  gameglue play digits --backend gpu_pixel\n"
        "  gameglue play digits --headless --frames 600 --screenshot digits.png --report digits.json\n"
        "  gameglue play digits --record run.jsonl\n  gameglue play digits --replay run.jsonl",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "demo", metavar="GAME", help="name of a demo (`gameglue list` shows them), or a folder with a main.py"
    )
    add_options(parser)
    parser.set_defaults(run=run)


def add_window_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that every command which plays a game has."""
    add_backend_options(parser, "what suits this machine")
    parser.add_argument("--headless", action="store_true", help="open no window, even if there is a display")
    parser.add_argument(
        "--seed", type=int, metavar="S", help="seed of all random numbers, for reproducible runs"
    )
    parser.add_argument(
        "--size", type=window_size, default=DEFAULT_SIZE, metavar="WxH", help="window size. Default: 960x640"
    )
    parser.add_argument("--screenshot", type=Path, metavar="FILE", help="save the last frame as PNG")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a run, for any game.

    Besides, `prepare(app, choice)` is called before the game is built; a built game's first launch sets it.
    """
    parser.set_defaults(prepare=lambda app, choice: None)
    kept = parser.add_mutually_exclusive_group()
    add_window_options(parser)
    parser.add_argument(
        "--autoplay", action="store_true", help="let the demo play itself; always on without a window"
    )
    parser.add_argument("--frames", type=positive, metavar="N", help="stop after N frames")
    parser.add_argument(
        "--animation",
        type=Path,
        metavar="FILE",
        help=f"save the last {SECONDS:.0f} s as an animated .gif, .png or .webp, at the game's own speed",
    )
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="save frame times, as JSON or as text (.txt)"
    )
    kept.add_argument("--record", type=Path, metavar="FILE", help="record the input of every frame")
    kept.add_argument("--replay", type=Path, metavar="FILE", help="replay a recording of --record")
    parser.add_argument(
        "--inspector", action="store_true", help="open the inspector over the game (F2 hides and shows it)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Play, and print the frame times."""
    return play_game(find_game(arguments.demo), arguments)


def play_game(demo: Demo, arguments: argparse.Namespace) -> int:
    """Play a game that was found already; otherwise as `run`."""
    build = demo.load()
    headless = arguments.headless or not has_display()
    replay = None if arguments.replay is None else _recording_of(demo.name, arguments.replay)
    animation = None if arguments.animation is None else Animation(arguments.animation, FRAMES_PER_SECOND)
    with App(
        f"gameglue: {demo.name}",
        size=arguments.size if replay is None else replay.size,
        headless=True if headless else None,
        folder=demo.own_folder,
        seed=arguments.seed
        if arguments.seed is not None or arguments.record is None
        else secrets.randbits(32),
        # A recording needs the same answers in the same frames again. An animation shows the game's own
        # speed: without this, a slow machine's networks would answer later in it.
        deterministic=arguments.record is not None or animation is not None,
        replay=replay,
        watchdog=watchdog.SECONDS,
    ) as app:
        # The window may have failed where a display was promised.
        alone = app.headless
        frames = arguments.frames if arguments.frames is not None or not alone else HEADLESS_FRAMES
        screenshot = arguments.screenshot or (Path("out", f"{demo.name}.png") if alone else None)
        report_path = arguments.report or (Path("out", f"{demo.name}.json") if alone else None)
        options = _options(app, arguments, replay)
        recording = None
        if arguments.record is not None:
            recording = app.record_input(demo=demo.name, autoplay=options.autoplay, **_backend_of(options))
        if arguments.inspector:
            app.inspector.show(app)
        _show_loading(app)
        arguments.prepare(app, options.choice)
        with CompileProgress() as progress:
            tell = build(app, replace(options, progress=progress, full_size=animation is not None))
        started = time.perf_counter()
        if animation is None:
            app.run(frames)
        else:
            animation.play(app, sys.maxsize if frames is None else frames)
        seconds = time.perf_counter() - started
        known = dict(tell()) if tell is not None else {}
        report = app.report(**known)
        saved: list[tuple[str, object]] = []
        if screenshot is not None and app.graphics.save_picture(screenshot):
            saved.append(("screenshot", screenshot.resolve()))
        if animation is not None and animation.save():
            saved.append(("animation", animation.path.resolve()))
        if report_path is not None:
            saved.append(("report", report.write(report_path).resolve()))
        if recording is not None:
            arguments.record.parent.mkdir(parents=True, exist_ok=True)
            recording.save(arguments.record)
            saved.append(("recording", arguments.record.resolve()))
        _print_summary(report, seconds, known, saved)
        return app.exit_code


def main_of(game: Demo, arguments: argparse.Namespace) -> int:
    """Run `play_game` as a program: an error is one line on standard error, and exit code 2."""
    logging.basicConfig(format=f"{game.name}: %(message)s", level=logging.WARNING)
    try:
        return play_game(game, arguments)
    except (EngineError, OSError) as error:
        print(f"{game.name}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED


def _recording_of(demo: str, path: Path) -> InputRecording:
    """What was recorded. Raises `InputError` where it is of something else."""
    recording = InputRecording.load(path)
    recorded = recording.metadata.get("demo")
    if recorded != demo:
        raise InputError(f"{path} is a recording of {recorded!r}, not of {demo!r}")
    return recording


def _options(app: App, arguments: argparse.Namespace, replay: InputRecording | None) -> PlayOptions:
    """What the player requested, or had requested when it was recorded."""
    choice, autoplay = choice_of(arguments), arguments.autoplay or app.headless
    if replay is not None:
        metadata = replay.metadata
        if choice is None:
            choice = BackendChoice(
                BackendType(metadata["backend"]), cast("DeviceName | None", metadata["device"])
            )
        autoplay = bool(metadata["autoplay"])
    elif choice is None and arguments.record is not None:
        choice = default_backend_choice(app.ctx is not None)[0]
    seed = app.seed if replay is not None or arguments.record is not None else arguments.seed
    return PlayOptions(choice, autoplay, seed)


def _backend_of(options: PlayOptions) -> dict[str, object]:
    assert options.choice is not None
    return {"backend": options.choice.backend.value, "device": options.choice.device}


def _show_loading(app: App) -> None:
    """Something to look at while kernels are compiled."""
    app.gui.text("loading", app.gui.width / 2, app.gui.height / 2, size=24, align="center", valign="center")
    app.graphics.draw_gui()
    app.graphics.present()


def _print_summary(
    report: FrameReport, seconds: float, known: dict[str, object], saved: list[tuple[str, object]]
) -> None:
    work = report.work
    pace = report.frames / seconds if seconds > 0.0 else 0.0
    rows: list[tuple[str, object]] = [
        ("played", f"{report.frames} frames in {seconds:.1f} s ({pace:.0f} frames/s)"),
        ("drawn by", report.metadata["renderer"]),
        (
            "frame times",
            f"median {work.median:.2f} ms, p95 {work.p95:.2f}, p99 {work.p99:.2f}, max {work.max:.2f}",
        ),
        *known.items(),
    ]
    if "limit" in report.metadata:
        rows.append(("limit", report.metadata["limit"]))
    errors = report.metadata["component errors"]
    if errors:
        rows.append(("errors", f"{errors} error(s) of components or requests; see the log above"))
    properties(output(), [*rows, *saved])
