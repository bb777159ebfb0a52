"""The README: its examples run, its links lead somewhere, and it stays one page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_examples_run(example: str, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(example, encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, str(script)]
    result = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    assert re.search(r"\d", result.stdout)


def test_the_first_example_is_ten_lines() -> None:
    lines = [line for line in EXAMPLES[0].splitlines() if line.strip()]
    assert len(lines) <= 10


def test_the_home_page_of_the_site_shows_the_same_lines() -> None:
    home = (ROOT / "docs" / "pages" / "index.md").read_text(encoding="utf-8")
    shown = re.findall(r"```python\n(.*?)```", home, re.DOTALL)[0]
    of_readme = re.sub(r"(  # path, bytes.*|assets/digits/)", "", EXAMPLES[0])
    assert shown == of_readme


def test_it_is_one_page() -> None:
    assert README.count("\n") <= 200
    assert len(README.encode()) <= 9 * 1024


LINKS = sorted(set(re.findall(r"\]\(([^)#]+)\)", README)))


@pytest.mark.parametrize("link", LINKS)
def test_links_lead_somewhere(link: str) -> None:
    assert (ROOT / link).exists()
