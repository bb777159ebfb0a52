"""`gameglue play` from the outside: exit codes, the picture, the report, the digits that were read."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gameglue import InputRecording
from gameglue.cli import main

ROOT = Path(__file__).parents[3]


def read_png(path: Path) -> np.ndarray:
    """(height, width, channels) uint8 of a PNG with 8 bits a channel, decoded here, not by what wrote it."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks: dict[bytes, bytes] = {}
    position = 8
    while position < len(data):
        length, kind = struct.unpack_from(">I4s", data, position)
        body = data[position + 8 : position + 8 + length]
        (check,) = struct.unpack_from(">I", data, position + 8 + length)
        assert check == zlib.crc32(kind + body)
        chunks[kind] = chunks.get(kind, b"") + body
        position += 12 + length
    width, height, bits, color, *_, interlaced = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (bits, interlaced) == (8, 0)
    channels = {2: 3, 6: 4}[color]
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, 1 + width * channels)
    picture = np.zeros((height, width * channels), np.uint8)
    for y in range(height):
        picture[y] = _unfilter(
            int(rows[y, 0]), rows[y, 1:], picture[y - 1] if y else picture[0] * 0, channels
        )
    return picture.reshape(height, width, channels)


def _unfilter(kind: int, row: np.ndarray, above: np.ndarray, step: int) -> np.ndarray:
    if kind == 0:
        return row
    if kind == 2:
        return row + above
    out = [0] * (len(row) + step)
    up = [0] * step + above.tolist()
    for i, value in enumerate(row.tolist(), start=step):
        left, over, corner = out[i - step], up[i], up[i - step]
        if kind == 1:
            guess = left
        elif kind == 3:
            guess = (left + over) // 2
        else:
            estimate = left + over - corner
            guess = min((left, over, corner), key=lambda v: abs(estimate - v))
        out[i] = (value + guess) & 255
    return np.array(out[step:], np.uint8)


def play(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python -m gameglue play digits` in `folder`, without a display."""
    variables = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    return subprocess.run(
        [sys.executable, "-m", "gameglue", "play", "digits", *options],
        cwd=folder,
        env={**variables, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def report_of(path: Path) -> dict[str, Any]:
    """A report that was written as JSON."""
    report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return report


@pytest.mark.gl
@pytest.mark.parametrize("backend", ["cpu", "gpu_compute", "gpu_pixel"])
def test_a_run_without_a_display_leaves_a_picture_and_a_report(tmp_path: Path, backend: str) -> None:
    run = play(tmp_path, "--backend", backend, "--frames", "40", "--size", "640x480")
    assert run.returncode == 0, run.stderr
    picture, report = tmp_path / "out" / "digits.png", report_of(tmp_path / "out" / "digits.json")
    assert str(picture) in run.stdout
    pixels = read_png(picture)
    assert pixels.shape == (480, 640, 3)
    # After 40 frames there is ink on the sheet, which fills the left, and letters on the right.
    bright = pixels.min(axis=2) > 200
    assert 500 < bright[60:420, 20:380].sum() < 40_000
    assert bright[60:420, 390:].sum() > 50
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 50
    assert report["frames"] == 40
    assert report["work"]["median"] > 0.0
    assert report["metadata"]["backend"].startswith(backend)
    assert report["metadata"]["component errors"] == 0
    assert report["metadata"]["readings"] >= 1


def test_without_opengl_it_plays_on_the_cpu_and_says_what_to_install(tmp_path: Path) -> None:
    run = play(tmp_path, "--frames", "10", GAMEGLUE_NO_OPENGL="1")
    assert run.returncode == 0, run.stderr
    assert "playing without drawing. To draw: " in run.stderr
    assert "Traceback" not in run.stderr
    assert not (tmp_path / "out" / "digits.png").exists()
    metadata = report_of(tmp_path / "out" / "digits.json")["metadata"]
    assert metadata["renderer"] == "none"
    assert metadata["backend"].startswith("cpu on ")


@pytest.fixture
def no_opengl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Play in this process, without OpenGL, in an empty folder."""
    monkeypatch.setenv("GAMEGLUE_NO_OPENGL", "1")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("no_opengl")
def test_the_digits_that_are_read_are_those_that_were_written(capsys: pytest.CaptureFixture[str]) -> None:
    # A frame stands for 1/60 s. The second digit is complete after 168 frames, the third after 283; the rest
    # is time for the answer, for which the pen waits.
    assert main(["play", "digits", "--headless", "--frames", "240", "--report", "here.json"]) == 0
    metadata = report_of(Path("here.json"))["metadata"]
    assert (metadata["digits written"], metadata["digits read"]) == ("0 1", "0 1")
    assert "digits read     0 1" in capsys.readouterr().out


@pytest.mark.usefixtures("no_opengl")
def test_a_seed_gives_another_order_that_repeats() -> None:
    first = np.random.default_rng(7).permutation(10)[0]
    command = ["play", "digits", "--headless", "--frames", "155", "--seed", "7", "--report"]
    for file in ("a.json", "b.json"):
        assert main([*command, file]) == 0
        assert report_of(Path(file))["metadata"]["digits read"].split()[0] == str(first)


@pytest.mark.usefixtures("no_opengl")
def test_a_text_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "digits", "--headless", "--frames", "3", "--report", "new/report.txt"]) == 0
    text = Path("new/report.txt").read_text(encoding="utf-8")
    assert "gameglue: digits: 3 frames" in text
    assert "backend: cpu on " in text


def test_the_module_is_the_command(tmp_path: Path) -> None:
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "gameglue", "play", "digitz"]
    run = subprocess.run(
        command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 2
    folders = ", ".join(sorted(main.parent.name for main in (ROOT / "demos").glob("*/main.py")))
    assert run.stderr.strip() == (
        f"gameglue: there is no demo 'digitz'; did you mean 'digits'? demos: {folders} (gameglue list)"
    )


@pytest.mark.gl
def test_a_recorded_run_replays_to_the_same_picture(tmp_path: Path) -> None:
    options = ("--headless", "--size", "480x320")
    run = play(tmp_path, *options, "--frames", "60", "--record", "run.jsonl", "--screenshot", "first.png")
    assert run.returncode == 0, run.stderr
    again = play(tmp_path, "--headless", "--replay", "run.jsonl", "--screenshot", "second.png")
    assert again.returncode == 0, again.stderr
    first, second = read_png(tmp_path / "first.png"), read_png(tmp_path / "second.png")
    # The panel shows how many milliseconds answers took; the rest is the same to the pixel.
    assert np.array_equal(first[:, :240], second[:, :240])
    metadata = report_of(tmp_path / "out" / "digits.json")
    assert metadata["frames"] == 60


@pytest.mark.usefixtures("no_opengl")
def test_a_recording_of_something_else_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    InputRecording(metadata={"demo": "other"}).save("run.jsonl")
    assert main(["play", "digits", "--headless", "--replay", "run.jsonl"]) != 0
    assert "a recording of 'other', not of 'digits'" in capsys.readouterr().err
