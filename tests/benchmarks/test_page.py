"""The writer of benchmarks' tables into a page."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.benchmarks import page as page_module
from tests.benchmarks import setting
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
    again = written(once, lambda command: "2 ms", "second")
    assert again == once.replace("second: 1 ms", "2 ms")


def test_a_name_that_the_page_lacks_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    with pytest.raises(SystemExit):
        main([str(page), "--only", "third"])
    assert "names first, second; not third" in capsys.readouterr().err
    assert page.read_text(encoding="utf-8") == PAGE


def test_each_table_is_written_when_its_benchmark_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")

    def printed(command: str) -> str:
        if command == "second":
            assert "first --short: 1 ms" in page.read_text(encoding="utf-8")
            raise subprocess.CalledProcessError(3, command)
        return f"{command}: 1 ms"

    monkeypatch.setattr(page_module, "printed", printed)
    monkeypatch.setattr(page_module, "uncommitted", list)
    assert main([str(page)]) == 1
    assert "first --short: 1 ms" in page.read_text(encoding="utf-8")
    assert "old\ntable" in page.read_text(encoding="utf-8")
    assert "second: exit code 3" in capsys.readouterr().err


def test_changes_that_are_not_committed_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    monkeypatch.setattr(page_module, "printed", lambda command: "1 ms")
    monkeypatch.setattr(page_module, "uncommitted", lambda: ["engine/base/errors.py"])
    with pytest.raises(SystemExit):
        main([str(page)])
    assert "commit these first" in capsys.readouterr().err
    assert page.read_text(encoding="utf-8") == PAGE
    assert main([str(page), "--uncommitted", "--only", "first --short"]) == 0
    assert page.read_text(encoding="utf-8").count("1 ms") == 1
    assert main([str(page), "--uncommitted"]) == 0
    assert page.read_text(encoding="utf-8").count("1 ms") == 2


def test_the_stamp_says_whether_all_is_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> None:
        person = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *person, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    (tmp_path / "docs").mkdir()
    for name in ("code.py", "docs/page.md"):
        (tmp_path / name).write_text("1", encoding="utf-8")
    git("add", ".")
    git("commit", "-m", "all")
    monkeypatch.setattr(setting, "ROOT", tmp_path)
    (tmp_path / "docs" / "page.md").write_text("2", encoding="utf-8")
    assert setting.uncommitted() == []
    assert re.fullmatch(r"[0-9a-f]+", setting._commit())
    (tmp_path / "code.py").write_text("2", encoding="utf-8")
    assert setting.uncommitted() == ["code.py"]
    assert setting._commit().endswith(", and changes that are not committed")


def test_the_performance_page_names_benchmarks() -> None:
    text = (ROOT / "docs" / "pages" / "performance.md").read_text(encoding="utf-8")
    commands = commands_of(text)
    assert len(commands) >= 3
    for command in commands:
        assert (ROOT / "tests" / "benchmarks" / f"{command.split()[0]}.py").is_file()
    # Each has its table, with the machine it was taken on.
    assert written(text, lambda command: "") != text
    assert text.count("\nmachine ") == len(commands)
