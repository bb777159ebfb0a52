"""The `gameglue` command: one module for each of its commands."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from engine.errors import EngineError
from gameglue.cli import (
    bench_model,
    build,
    diff,
    doctor,
    inspect_model,
    list_demos,
    new,
    operators,
    play,
    profile,
    run_model,
    warmup,
)

FAILED = 2
"""Exit code of what was asked for and cannot be done; argparse uses the same one for a wrong command line."""


_COMMANDS = (
    list_demos,
    play,
    new,
    build,
    profile,
    run_model,
    inspect_model,
    bench_model,
    warmup,
    diff,
    operators,
    doctor,
)


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="gameglue",
        description="Neural networks inside a running game.",
        epilog="start here:\n"
        "  gameglue play digits    draw a digit, a network reads it as you draw\n"
        "  gameglue doctor         what this machine offers, and what to install for the rest\n"
        "\n`gameglue COMMAND --help` tells more about a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gameglue {_version()}")
    parser.add_argument("--traceback", action="store_true", help="show where in the code an error came from")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for module in _COMMANDS:
        module.add_parser(commands)
    for command in commands.choices.values():
        # Also behind the command, where one thinks of it; a default of its own would undo the first.
        command.add_argument(
            "--traceback", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS
        )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, or 2 with one line on standard error."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if "run" not in arguments:
        parser.print_help(sys.stderr)
        return FAILED
    logging.basicConfig(format="gameglue: %(message)s", level=logging.WARNING)
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except (EngineError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            # Whoever read the output has left, as `head` does; Python's flush at exit must not complain too.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        if arguments.traceback:
            raise
        print(f"gameglue: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("gameglue: interrupted", file=sys.stderr)
        return play.INTERRUPTED


def _version() -> str:
    try:
        return version("gameglue")
    except PackageNotFoundError:
        return "(not installed)"


__all__ = ["build_parser", "main"]
