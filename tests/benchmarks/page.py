"""Writes benchmarks' tables into a page of the documentation.

    python -m tests.benchmarks.page docs/pages/performance.md --only new_sizes

A page names a benchmark in a comment, and what that prints stands behind it, in a block of text::

    <!-- benchmark: policy --backends cpu -->

Each table begins with the date, the command, the machine and the versions.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

_MARK = re.compile(r"<!-- benchmark: (?P<command>\S.*?) -->\n(?:\n```text\n.*?\n```\n)?", re.DOTALL)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmarks that a page names, one after the other, and write their tables there."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.page", description=__doc__.split("\n")[0]
    )
    parser.add_argument("page", type=Path, help="the Markdown file")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="names of benchmarks. Default: all")
    options = parser.parse_args(argv)
    text = options.page.read_text(encoding="utf-8")
    names = [command.split()[0] for command in commands_of(text)]
    unknown = sorted(set(options.only or ()) - set(names))
    if unknown or not names:
        parser.error(f"{options.page} names {', '.join(names) or 'no benchmark'}; not {', '.join(unknown)}")
    options.page.write_text(written(text, printed, options.only), encoding="utf-8")
    return 0


def commands_of(text: str) -> list[str]:
    """The benchmarks that a page names, with their options."""
    return [found["command"] for found in _MARK.finditer(text)]


def written(text: str, run: Callable[[str], str], only: Sequence[str] | None = None) -> str:
    """The page with the tables that `run` returns for each command; others stay as they are."""

    def replaced(found: re.Match[str]) -> str:
        command = found["command"]
        if only and command.split()[0] not in only:
            return found[0]
        return f"<!-- benchmark: {command} -->\n\n```text\n{run(command).strip()}\n```\n"

    return _MARK.sub(replaced, text)


def printed(command: str) -> str:
    """What a benchmark prints; its progress goes to standard error."""
    print(command, file=sys.stderr)
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
