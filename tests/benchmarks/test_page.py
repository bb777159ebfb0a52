"""The writer of benchmarks' tables into a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.page import commands_of, main, written
from tests.conftest import ROOT

PAGE = """# Speed

<!-- benchmark: first --short -->

Text.

<!-- benchmark: second -->

```text
old
table
```

The end.
"""


def test_tables_are_written_behind_their_marks() -> None:
    once = written(PAGE, lambda command: f"{command}: 1 ms\n")
    assert once.count("```text\n") == 2
    assert "<!-- benchmark: first --short -->\n\n```text\nfirst --short: 1 ms\n```\n\nText." in once
    assert "<!-- benchmark: second -->\n\n```text\nsecond: 1 ms\n```\n\nThe end." in once
    assert "old" not in once
    # Writing again replaces what was written, and `only` leaves the others.
    again = written(once, lambda command: "2 ms", ["second"])
    assert again == once.replace("second: 1 ms", "2 ms")


def test_a_name_that_the_page_lacks_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    with pytest.raises(SystemExit):
        main([str(page), "--only", "third"])
    assert "names first, second; not third" in capsys.readouterr().err
    assert page.read_text(encoding="utf-8") == PAGE


def test_the_performance_page_names_benchmarks() -> None:
    text = (ROOT / "docs" / "pages" / "performance.md").read_text(encoding="utf-8")
    commands = commands_of(text)
    assert len(commands) >= 3
    for command in commands:
        assert (ROOT / "tests" / "benchmarks" / f"{command.split()[0]}.py").is_file()
    # Each has its table, with the machine it was taken on.
    assert written(text, lambda command: "") != text
    assert text.count("\nmachine ") == len(commands)
