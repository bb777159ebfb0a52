"""The field suite: a few small published models always, all sources if `GAMEGLUE_FIELD=all` is set."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.field import __main__ as field
from tests.field import preparing, running
from tests.field.feeds import write_feeds

pytest.importorskip("onnxruntime", reason="onnxruntime is the independent answer")

WANTED = os.environ.get("GAMEGLUE_FIELD", "sample")


@pytest.mark.long
def test_what_people_bring_runs(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = field.main([] if WANTED == "all" else ["--sample"])
    with capsys.disabled():
        print("\n" + capsys.readouterr().out)
    assert wrong == 0


def model(folder: Path) -> Path:
    """y = x + x, and its inputs."""
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[3] x) => (float[3] y) {y = Add (x, x)}'
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    write_feeds(path, [{"x": np.ones(3, np.float32)}])
    return path


def test_a_source_is_made_again_when_what_it_imports_changes() -> None:
    sources = preparing.HERE / "sources"
    found = preparing.modules([sources / "published.py"])
    assert {"published.py", "packages.py", "inputs.py", "feeds.py", "images.py"} <= {f.name for f in found}
    assert sources / "exporting.py" in preparing.modules([sources / "detectors.py"])
    assert sources / "exporting.py" not in found


@pytest.mark.long
def test_a_row_of_the_table(tmp_path: Path) -> None:
    (row,) = running.run_model("made", model(tmp_path), ["cpu"])
    assert row.problems == []
    assert row.error == row.own == 0
    assert row.run_ms > 0
    assert row.ratio > 0


def test_a_backend_that_ends_the_process_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    reference = {"reference": {"own": 0.0, "load_ms": 1.0, "run_ms": 1.0, "sizes": 1}}
    agrees = {"failure": "", "error": 0.0, "bound": 1e-4, "fallbacks": [], "load_ms": 1.0, "run_ms": 2.0}

    def run_child(path: Path, backends: list[str], seconds: float) -> tuple[list[dict], str]:
        if "cpu" in backends:
            return [reference, {"begins": "cpu"}], "the process ended (exit code -11)"
        return [reference, {"begins": "opencl"}, {"backend": "opencl", **agrees}], "exit code 0"

    monkeypatch.setattr(running, "_run_child", run_child)
    rows = list(running.run_model("made", Path("model.onnx"), ["cpu", "opencl"]))
    assert [row.backend for row in rows] == ["cpu", "opencl"]
    assert rows[0].problems == ["the process ended (exit code -11)"]
    assert rows[1].problems == []
    assert rows[1].ratio == 0.5


@pytest.mark.long
def test_a_model_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    (row,) = running.run_model("made", model(tmp_path), ["cpu"], seconds=0.01)
    assert "took more than 0 s" in row.failure


@pytest.mark.long
def test_a_model_without_an_answer_of_onnxruntime_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"no model")
    write_feeds(path, [{"x": np.ones(1, np.float32)}])
    (row,) = running.run_model("made", path, ["cpu"])
    assert row.failure.startswith("no reference: DecodeError: ")
    assert row.problems == [row.failure]
