"""`gameglue warmup MODEL...`: compile ahead what models need, so that a game's first start is a warm one."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time

from engine import BackendType, ModelLoader, SystemInfo, reserve_game_core
from engine.base.errors import EngineError, InputError
from engine.device.native import process_store
from gameglue.cli.backends import add_backend_options, add_precision_option, choice_of
from gameglue.cli.console import CompileProgress, output, paragraph, table
from gameglue.cli.models import add_dim_option, dims_of, find_model
from gameglue.inference.backend_choice import BACKEND_CHOICES, BackendChoice, open_worker, why_unavailable


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, line: str) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        name,
        help=line,
        description=paragraph(
            "Compile and cache every kernel that models need, so that a game's first start",
            "takes no longer than its second. Run it on the player's machine, as an installer's last step.",
            "With sizes for all dynamic dimensions (--dim), also creates plans and runs each program once.",
        ),
        epilog="examples:\n  gameglue warmup digits\n  gameglue warmup *.onnx --all",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "models", nargs="+", metavar="MODEL", help="an .onnx file, or the name of a bundled model"
    )
    add_dim_option(parser, "left open")
    add_backend_options(parser, "cpu")
    add_precision_option(parser)
    parser.add_argument("--all", action="store_true", help="for every backend that this machine supports")
    parser.add_argument(
        "--low-priority", action="store_true", help="compile at low priority while a game is running"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Warm up each model on each backend; failures are reported, and the others continue."""
    if arguments.low_priority:
        _give_way()
    # Plans are stored for so many threads: have them be those of a game's frame loop.
    reserve_game_core()
    choices = [choice_of(arguments) or BackendChoice(BACKEND_CHOICES[0].backend)]
    if arguments.all:
        info = SystemInfo.query()
        choices = [choice for choice in BACKEND_CHOICES if why_unavailable(choice, info) is None]
    store, rows, failures = process_store(), [], 0
    for name in arguments.models:
        for choice in choices:
            started, before = time.perf_counter(), store.compilations
            try:
                model = ModelLoader.load(find_model(name), dims=dims_of(arguments))
                with CompileProgress(f"{name}, {choice.label}") as progress:
                    worker = open_worker(model, choice, progress)
                    kernels = worker.plan_report().kernels
                    # Some drivers compile when a program is used with what it is used with in the game.
                    with contextlib.suppress(InputError):
                        worker.warm_up().wait()
                    worker.dispose()
            except EngineError as error:
                failures += 1
                print(f"gameglue: {name} on {choice.label}: {error}", file=sys.stderr)
                continue
            seconds = time.perf_counter() - started
            compiled = store.compilations - before if choice.backend is BackendType.CPU else "-"
            rows.append((name, choice.label, kernels, compiled, f"{seconds:.2f} s"))
    if rows:
        columns = ("model", "backend", "kernels", "compiled", "took")
        output().print(table(columns, rows, right=columns[2:]))
    return 2 if failures else 0


def _give_way() -> None:
    """Let every other process go first; what this one starts does so too, and leaves one core alone."""
    process_store().pool.reserve_core(always=True)
    if hasattr(os, "SCHED_IDLE"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    elif hasattr(os, "nice"):
        os.nice(19)
