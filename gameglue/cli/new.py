"""`gameglue new NAME`: creates a folder with a small, complete game."""

from __future__ import annotations

import argparse
from pathlib import Path

from engine.base.errors import InputError
from gameglue.cli.console import command_line, output, paragraph

SKELETON = Path(__file__).resolve().parents[1] / "shipping" / "skeleton"
"""The files of a new game: what ends in .txt loses that, and has the game's name in the place of TITLE."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, line: str) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        name,
        help=line,
        description=paragraph(
            "Create a folder with a small game: a main program, a component that runs a network, the model,",
            "sprites, a sound, a scene file and a README. It can be run immediately.",
        ),
        epilog="example:\n  gameglue new my_game && python my_game/main.py",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "name", type=Path, metavar="NAME", help="the folder to create; its name becomes the game's"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Create the folder, and print the next steps."""
    folder: Path = arguments.name
    files = make_game(folder)
    output().print(f"made {folder} with {', '.join(files)}", markup=False)
    output().print("play it with one of:")
    for words in (("python", folder / "main.py"), ("gameglue", "play", _as_path(folder))):
        output().print(f"  {command_line(*words)}", markup=False)
    return 0


def make_game(folder: Path) -> list[str]:
    """Write a new game; returns the names of its files. Raises `InputError` if files exist already."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is there already; choose another name, or empty it")
    made = []
    for source in sorted(SKELETON.rglob("*")):
        if not source.is_file():
            continue
        target = folder / source.relative_to(SKELETON)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".txt":
            target = target.with_suffix("")
            text = source.read_text(encoding="utf-8").replace("TITLE", folder.resolve().name)
            target.write_text(text, encoding="utf-8")
        else:
            target.write_bytes(source.read_bytes())
        made.append(target.relative_to(folder).as_posix())
    return made


def _as_path(folder: Path) -> str:
    """The folder as `gameglue play` takes it: with ./ before a single word, which would name a demo."""
    return str(folder) if len(folder.parts) > 1 else f"./{folder}"
