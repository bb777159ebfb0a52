"""`play`: the main program of a game, with the command-line options that demos have."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Sequence
from pathlib import Path

from engine import freeze_support
from gameglue.host.play_options import Build


def play(build: Build, argv: Sequence[str] | None = None) -> int:
    """The main program of a game: open an app, have `build` fill it, play, and return the exit code.

        if __name__ == "__main__":
            raise SystemExit(play(build))

    argv: the options of `gameglue play` (`--headless`, `--frames N`, `--seed S`, `--screenshot FILE` ...), by
    default the program's own. Names in `app.resources` are looked up next to the file that defines `build`.
    """
    freeze_support()
    # The command line prints with packages that a game without it does not need.
    from gameglue.cli import play as command
    from gameglue.cli.demos import Demo

    main = Path(inspect.getfile(build)).resolve()
    parser = argparse.ArgumentParser(prog=main.name)
    command.add_options(parser)
    game = Demo(main.parent.name, "", main.parent, main.parent, build)
    return command.main_of(game, parser.parse_args(argv))
