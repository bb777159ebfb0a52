"""`gameglue list`: the demos that can be played."""

from __future__ import annotations

import argparse

from gameglue.cli.console import output, properties
from gameglue.cli.demos import find_demos


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, line: str) -> None:
    """Describe the command."""
    parser = commands.add_parser(name, help=line, description="Show the demos that `gameglue play` can play.")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print each demo's name and description."""
    console = output()
    demos = find_demos()
    properties(console, [(demo.name, demo.description) for demo in demos])
    if demos:
        console.print(f"\nplay one with:\n  gameglue play {demos[0].name}")
    return 0
