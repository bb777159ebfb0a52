"""The report is one well-formed page that needs nothing else, and shows the recording's numbers."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from gameglue.profiling.html import html_report, write_html
from gameglue.profiling.plots import curve, histogram, nice_ticks, stacked
from gameglue.profiling.recording import ProfileRecording
from gameglue.profiling.session import Profile
from tests.gameglue.profiling.recorded import profile_of, recorded

EMPTY = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """Checks that tags are closed in order; keeps texts, and what points elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_page_is_complete_and_stands_alone(tmp_path: Path) -> None:
    path = write_html(profile_of(recorded(40)), tmp_path / "new" / "report.html")
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert page.links == []
    assert "http" not in re.sub(r"http-equiv", "", text)
    assert page.tags.count("svg") == 3
    assert "prefers-color-scheme:dark" in text
    told = " ".join(page.texts)
    for words in ("made <by hand>", "none & nothing", "Reader.update", "blocking calls", "inference paused"):
        assert words in told
    assert "4.00" in told
    assert "nan" not in text.lower()


def test_what_the_gpu_drew_and_what_went_wrong_is_told() -> None:
    recording = recorded()
    recording.drawn("gui", 1.0, 1.25)
    recording.nan_alarm.look("net", "y", np.array([np.nan], np.float32), 3)
    told = " ".join(Page(html_report(profile_of(recording))).texts)
    assert "Drawn by the GPU" in told
    assert "250.000" in told
    assert "net: y has 1 NaN of 1 (frame 3)" in told


def test_a_profile_without_frames_is_a_page_too() -> None:
    Page(html_report(Profile("nothing", ProfileRecording(), 60.0)))


def points(svg: str, style: str) -> np.ndarray:
    """The (n, 2) points of the first shape of a class."""
    found = re.search(rf'class="{style}" points="([^"]+)"', svg)
    assert found is not None
    return np.array([[float(v) for v in pair.split(",")] for pair in found[1].split()])


def test_a_curve_is_where_its_numbers_are() -> None:
    line = points(curve(np.array([0.0, 10.0, 5.0]), None, []), "line")
    assert (np.diff(line[:, 0]) > 0).all()
    low, high, middle = line[:, 1]
    assert high < middle < low  # y grows downwards
    assert middle == pytest.approx((low + high) / 2, abs=0.11)


def test_stacks_add_up() -> None:
    ones, twos = np.ones(8), np.full(8, 2.0)
    svg = stacked([("a", "c0", ones), ("b", "c1", twos)])
    below, above = points(svg, "stack c0"), points(svg, "stack c1")
    first = below[-1, 1] - below[0, 1]
    second = above[-1, 1] - above[0, 1]
    assert second == pytest.approx(2 * first, abs=0.2)
    assert above[-1, 1] == pytest.approx(below[0, 1], abs=0.11)


def test_a_histogram_counts_every_frame_once() -> None:
    values = np.concatenate([np.full(30, 4.0), np.full(10, 8.0)])
    outline = points(histogram([("x", "side-a", values)], None), "hist side-a")
    base = outline[0, 1]
    heights = base - outline[1:-1:2, 1]
    assert sorted(heights[heights > 0.2])[-1] == pytest.approx(
        3 * sorted(heights[heights > 0.2])[0], rel=0.02
    )


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 10, [0, 2, 4, 6, 8, 10]), (0, 0.9, [0, 0.2, 0.4, 0.6, 0.8]), (37, 140, [50, 100])],
)
def test_ticks_are_round_numbers(low: float, high: float, expected: list[float]) -> None:
    assert nice_ticks(low, high) == pytest.approx(expected)
