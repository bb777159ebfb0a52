"""What a page of the documentation does, read from its Markdown, and how it is done.

A page's steps, from top to bottom:

- a ```` ```python ```` block runs, all blocks of a page in one namespace;
- a block of any language with `title="main.py"` is a file, written below the current folder;
- `<!-- run: python main.py --headless -->` runs a command (`python`, `gameglue`);
- `<!-- hidden: python`, code, `-->` runs and is not shown;
- `<!-- skip: REASON -->` leaves out the step that follows;
- `<!-- window: REASON -->` leaves it out, too: a test of its own runs it where there is a display.

Run as a program with a page's path and numbers of frames, it takes these steps in the current folder, once
for each number; every game ends after that many frames, with 0 when it ends itself.
"""

from __future__ import annotations

import re
import runpy
import shlex
import sys
import textwrap
import types
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from gameglue import App

_OPENED = re.compile(r"(?P<indent>[ \t]*)(?P<fence>`{3,})(?P<language>[^\s`]*)(?P<rest>[^`]*)$")
_COMMAND = re.compile(r"\s*<!-- run: (.*?) -->\s*$")
_SKIP = re.compile(r"\s*<!-- (skip|window): \S.* -->\s*$")
_TITLE = re.compile(r'\btitle="([^"]+)"')
_ALIASES = {"py", "python3", "pycon", "py3"}


class PageError(Exception):
    """A page is not written by the convention."""


@dataclass(frozen=True)
class Step:
    """One thing that a page does.

    Attributes:
        kind: Code to run, a file to write, or a command.
        text: The code, the file's content, or the command.
        line: The line of the page on which `text` begins, from 1.
        file: The file's path, of a file.
        opens_window: Whether it is code that opens a window without an `App`, and runs by itself.
    """

    kind: Literal["code", "file", "command"]
    text: str
    line: int
    file: str = ""
    opens_window: bool = False


def steps_of(page: str) -> list[Step]:
    """The steps of a page, given its text.

    Raises:
        PageError: A block is not closed, is called `py` rather than `python`, or a skip has nothing to skip.
    """
    lines = page.splitlines()
    steps: list[Step] = []
    skip_line = 0
    skipped = ""
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        step: Step | None = None
        if skip := _SKIP.match(line):
            skip_line, skipped = number, skip[1]
            continue
        if found := _COMMAND.match(line):
            step = Step("command", found[1], number)
        elif line.strip() == "<!-- hidden: python":
            first = number
            number = _index(lines, number, "-->", first)
            step = Step("code", _joined(lines[first : number - 1], ""), first + 1)
        elif found := _OPENED.match(line):
            first = number
            number = _index(lines, number, found["fence"], first)
            text = _joined(lines[first : number - 1], found["indent"])
            step = _block(found["language"], found["rest"], text, first + 1)
            if step is None and skip_line:
                skip_line = 0  # nothing would have run
                continue
        if step is None:
            continue
        if not skip_line:
            steps.append(step)
        elif skipped == "window":
            steps.append(replace(step, opens_window=True))
        skip_line = 0
    if skip_line:
        raise PageError(f"line {skip_line}: nothing follows that could be skipped")
    return steps


def _index(lines: list[str], start: int, closing: str, opened: int) -> int:
    """The number of the line after which the block that was opened is closed."""
    for number in range(start, len(lines)):
        if lines[number].strip() == closing:
            return number + 1
    raise PageError(f"line {opened}: is never closed by {closing}")


def _joined(lines: list[str], indent: str) -> str:
    return textwrap.dedent("".join(f"{line.removeprefix(indent)}\n" for line in lines))


def _block(language: str, rest: str, text: str, line: int) -> Step | None:
    if language in _ALIASES:
        raise PageError(f'line {line - 1}: write ```python (it runs) or ```text, not "{language}"')
    if title := _TITLE.search(rest):
        return Step("file", text, line, title[1])
    if language == "python":
        return Step("code", text, line)
    return None


class Ended(BaseException):
    """A game was ended early; what its program does afterwards is left out."""


def _follows_end(error: BaseException | None) -> bool:
    """True for an exception that was raised while `Ended` was on its way."""
    while error is not None and not isinstance(error, Ended):
        error = error.__context__
    return error is not None


class Player:
    """Takes the steps of a page in the current folder, as a main program of its own."""

    def __init__(self, path: Path) -> None:
        self.folder = Path.cwd().resolve()
        self.limit: int | None = None
        self.games = 0
        steps = steps_of(path.read_text(encoding="utf-8"))
        self.steps = [step for step in steps if not step.opens_window]
        # The code stands in this file on the same lines as on the page, for tracebacks and for what asks in
        # which file a function is.
        self.file = str(self.folder / "page.py")
        source: list[str] = []
        for step in self.steps:
            if step.kind == "code":
                source += [""] * (step.line - 1 - len(source)) + step.text.splitlines()
        Path(self.file).write_text("\n".join(source) + "\n", encoding="utf-8")
        sys.path.insert(0, str(self.folder))

    def play(self, limits: Sequence[int | None]) -> None:
        """Take all steps once for each limit, and end every game after so many frames; None ends none.

        What stands behind a game that was ended in its block is left out, and so is the rest of a page that
        cannot go on without it. Commands run in this process, those that start no game once.
        """
        if any(limits):
            # Only here: pages run without it, too.
            from gameglue import App

            App.runner = self._run_limited
        plain: set[Step] = set()
        for self.limit in limits:
            main = self._new_main()
            seen = self.games
            for step in self.steps:
                before = self.games
                try:
                    if step.kind == "file":
                        self._write(step)
                    elif step.kind == "code":
                        self._run(step, main)
                    elif step not in plain:
                        self._run_here(step)
                        if self.games == before:
                            plain.add(step)
                except Ended:
                    pass
                except PageError:
                    raise
                except Exception as error:
                    # What fails while a game is closed is an error; what its program misses later is none.
                    if self.limit is None or self.games == seen or _follows_end(error):
                        raise
                    break

    def _run_limited(self, app: App, frames: int | None) -> None:
        """Run a game for as many frames as are allowed, and end its program then."""
        from gameglue import App

        self.games += 1
        App.runner = None
        try:
            app.run(min((n for n in (frames, self.limit) if n is not None), default=None))
        finally:
            App.runner = self._run_limited
        if self.limit is not None:
            raise Ended

    def _new_main(self) -> types.ModuleType:
        for name, module in list(sys.modules.items()):
            if self.folder in Path(getattr(module, "__file__", None) or "/").resolve().parents:
                del sys.modules[name]
        main = types.ModuleType("__main__")
        main.__file__ = self.file
        sys.modules["__main__"] = main
        sys.argv = [self.file]  # an App looks for files beside the running script
        return main

    def _run(self, step: Step, main: types.ModuleType) -> None:
        padded = "\n" * (step.line - 1) + step.text
        exec(compile(padded, self.file, "exec", dont_inherit=True), main.__dict__)

    def _run_here(self, step: Step) -> None:
        """A command in this process."""
        program, *arguments = shlex.split(step.text)
        if program not in ("python", "gameglue"):
            raise PageError(f"line {step.line}: `{step.text}` begins with neither python nor gameglue")
        before, sys.argv = sys.argv, arguments
        try:
            if program == "gameglue":
                # Only here, as above.
                from gameglue.cli import main

                code: object = main(arguments)
            else:
                code = 0
                # As Python does for a script.
                sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
                runpy.run_path(arguments[0], run_name="__main__")
        except SystemExit as error:
            code = error.code
        finally:
            sys.argv = before
        if code:
            raise PageError(f"line {step.line}: `{step.text}` ended with exit code {code}")

    def _write(self, step: Step) -> None:
        file = (self.folder / step.file).resolve()
        if self.folder not in file.parents:
            raise PageError(f"line {step.line - 1}: {step.file} is outside the page's folder")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(step.text, encoding="utf-8")


if __name__ == "__main__":
    Player(Path(sys.argv[1])).play([int(number) or None for number in sys.argv[2:]])
