"""Each game can be read in one sitting: fewer than 300 lines of code."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import pytest

DEMOS = Path(__file__).parents[2] / "demos"
GAMES = sorted(path.parent for path in DEMOS.glob("*/main.py"))
_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip


def code_lines(text: str) -> set[int]:
    """Numbers of the lines that hold more than imports, docstrings, comments and space."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
                first, last = node.lineno, node.end_lineno
            case _:
                continue
        lines.difference_update(range(first, (last or first) + 1))
    return lines


def test_what_is_counted() -> None:
    text = '"""Of a module."""\nimport os\n\n# A comment.\nx = [\n    1,\n]\n\ndef f():\n    """What."""\n'
    assert code_lines(text) == {5, 6, 7, 9}


@pytest.mark.parametrize("game", GAMES, ids=lambda path: path.name)
def test_a_game_is_short(game: Path) -> None:
    sizes = {path.name: len(code_lines(path.read_text("utf-8"))) for path in game.rglob("*.py")}
    assert 0 < sum(sizes.values()) < 300, sizes
