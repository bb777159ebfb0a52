"""`gameglue build GAME`: a game as a folder that runs on machines without Python."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from engine.base.errors import InputError
from gameglue.cli.console import errors, output, paragraph, properties
from gameglue.cli.demos import find_demo, find_demos
from gameglue.shipping.bundle import build, missing_builder, package_of_demo, package_of_path, size_of

_MEGABYTE = 1e6


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, line: str) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        name,
        help=line,
        description=paragraph(
            "Package a game with Python and its dependencies as one folder, using PyInstaller. It runs on",
            "machines with the same system and architecture, without Python. Kernels are compiled at the",
            "first launch on each machine, and cached there. Building takes about a minute.",
        ),
        epilog="examples:\n  gameglue build digits\n  gameglue build ./my_game --output dist",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "game", metavar="GAME", help="a folder with a main.py, a script, or the name of a demo"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("dist"), metavar="DIR", help="output folder. Default: dist"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Build the game and print the result."""
    missing = missing_builder()
    if missing is not None:
        raise InputError(missing)
    is_demo = arguments.game in {demo.name for demo in find_demos()}
    package = package_of_demo(find_demo(arguments.game)) if is_demo else package_of_path(Path(arguments.game))
    console, started = errors(), time.perf_counter()
    console.print(f"building {package.name} with PyInstaller, which takes about a minute", markup=False)
    program = build(package, arguments.output)
    rows = [
        ("program", program),
        ("folder", f"{size_of(program.parent) / _MEGABYTE:.0f} MB, to be shipped as a whole"),
        ("models", ", ".join(package.models) or "none"),
        ("took", f"{time.perf_counter() - started:.0f} s"),
    ]
    properties(output(), rows)
    return 0
