"""Writes benchmarks' tables into a page of the documentation.

    python -m tests.benchmarks.page docs/pages/performance.md
    python -m tests.benchmarks.page docs/pages/performance.md --only new_sizes

A page names a benchmark in a comment, and what that prints stands behind it, in a block of text::

    <!-- benchmark: policy --backends cpu -->

Each table begins with the date, the command, the commit, the machine and the versions. So that the commit
says what was measured, changes outside the documentation have to be committed before. The page is written
after each benchmark, so that one that fails costs no table of the others.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.benchmarks.setting import uncommitted

_MARK = re.compile(r"<!-- benchmark: (?P<command>\S.*?) -->\n(?:\n```text\n.*?\n```\n)?", re.DOTALL)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmarks that a page names, one after the other, and write their tables there."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.page", description=__doc__.split("\n")[0]
    )
    parser.add_argument("page", type=Path, help="the Markdown file")
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        help="names of benchmarks, or whole commands as the page has them. Default: all",
    )
    parser.add_argument(
        "--uncommitted", action="store_true", help="measure in spite of changes that are not committed"
    )
    options = parser.parse_args(argv)
    text = options.page.read_text(encoding="utf-8")
    commands = commands_of(text)
    names = list(dict.fromkeys(command.split()[0] for command in commands))
    unknown = sorted(set(options.only or ()) - {*names, *commands})
    if unknown or not names:
        parser.error(f"{options.page} names {', '.join(names) or 'no benchmark'}; not {', '.join(unknown)}")
    changed = uncommitted()
    if changed and not options.uncommitted:
        parser.error(
            f"commit these first, so that the tables can name what was measured: {', '.join(changed)}"
        )
    failed = []
    for command in commands:
        if options.only and not {command, command.split()[0]} & set(options.only):
            continue
        began = time.monotonic()
        try:
            text = written(text, printed, command)
        except subprocess.CalledProcessError as error:
            failed.append(f"{command}: exit code {error.returncode}")
        options.page.write_text(text, encoding="utf-8")
        print(f"{command}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    for problem in failed:
        print(problem, file=sys.stderr)
    return 1 if failed else 0


def commands_of(text: str) -> list[str]:
    """The benchmarks that a page names, with their options."""
    return [found["command"] for found in _MARK.finditer(text)]


def written(text: str, run: Callable[[str], str], only: str | None = None) -> str:
    """The page with the tables that `run` returns for each command, or for one; others stay as they are."""

    def replaced(found: re.Match[str]) -> str:
        command = found["command"]
        if only not in (None, command):
            return found[0]
        return f"<!-- benchmark: {command} -->\n\n```text\n{run(command).strip()}\n```\n"

    return _MARK.sub(replaced, text)


def printed(command: str) -> str:
    """What a benchmark prints. Raises `CalledProcessError` if it fails."""
    name, *options = command.split()
    done = subprocess.run(
        [sys.executable, "-m", f"tests.benchmarks.{name}", *options],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return "\n".join(line.rstrip() for line in done.stdout.splitlines())


if __name__ == "__main__":
    raise SystemExit(main())
