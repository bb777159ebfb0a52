"""The `gameglue` command; the module of each subcommand is imported on use."""

from __future__ import annotations

import argparse
import difflib
import importlib
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

from engine.base.errors import EngineError

FAILED = 2
"""Exit code of what cannot be done; argparse uses the same one for a wrong command line."""

INTERRUPTED = 130
"""Exit code of what Ctrl-C has ended, as shells have it."""

COMMANDS = {
    "list": ("list_demos", "show the demos"),
    "play": ("play", "play a demo or a game folder"),
    "new": ("new", "create a new game from a template"),
    "build": ("build", "package a game as a folder that runs without Python"),
    "profile": ("profile", "measure where each frame's time goes, with and without inference"),
    "run": ("run_model", "run a model once"),
    "inspect": ("inspect_model", "show a model's layers and plans"),
    "bench": ("bench_model", "time a model on every backend"),
    "warmup": ("warmup", "compile the kernels of models ahead of time"),
    "diff": ("diff", "find the first layer whose result differs between two backends or engines"),
    "operators": ("operators", "list the supported operators of each backend"),
    "doctor": ("doctor", "show what this machine supports"),
}
"""By command: the module, and the line that `gameglue --help` shows."""


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """Build the argument parser, for all commands or with the options of `command` only.

    The module of a command imports what the command needs, which can be all of the engine.
    """
    parser = argparse.ArgumentParser(
        prog="gameglue",
        description="Neural networks inside a running game.",
        epilog="start here:\n"
        "  gameglue play digits    draw a digit and watch a network recognise it\n"
        "  gameglue doctor         what this machine supports, and what to install\n"
        "\n`gameglue COMMAND --help` shows the options of a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    parser.add_argument("--traceback", action="store_true", help="print the traceback of an error")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, (module, line) in COMMANDS.items():
        if command in (None, name):
            importlib.import_module(f"gameglue.cli.{module}").add_parser(commands, name, line)
        else:
            commands.add_parser(name, help=line)
    for choice in commands.choices.values():
        # Also behind the command, where one thinks of it; a default of its own would undo the first.
        choice.add_argument(
            "--traceback", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS
        )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, or 2 with one line on standard error.

    Raises:
        SystemExit: after `--help` or `--version`, and with 2 for a wrong command line.
    """
    given = sys.argv[1:] if argv is None else [*argv]
    # No option before the command takes a value.
    command = next((word for word in given if not word.startswith("-")), "")
    parser = build_parser(command)
    if command and command not in COMMANDS:
        parser.error(_unknown(command))
    arguments = parser.parse_args(given)
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
        return INTERRUPTED


def _unknown(command: str) -> str:
    near = difflib.get_close_matches(command, COMMANDS, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"there is no command {command!r}; {hint}commands: {', '.join(COMMANDS)} (gameglue --help)"


class _Version(argparse.Action):
    """Prints the version; looking it up takes longer than all the rest of the command line."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        # Slow to import.
        from importlib.metadata import PackageNotFoundError, version

        try:
            found = version("gameglue")
        except PackageNotFoundError:
            found = "(not installed)"
        print(f"gameglue {found}")
        parser.exit()


__all__ = ["COMMANDS", "FAILED", "INTERRUPTED", "build_parser", "main"]
