"""`gameglue profile` from the outside: what it prints, and the files that it leaves."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gameglue.cli import main
from tests.engine.base.test_instrumentation import chain
from tests.gameglue.profiling.test_html import Page
from tests.gameglue.profiling.test_trace import check_schema

DIGITS = Path(__file__).parents[3] / "assets" / "digits" / "digits.onnx"
QUICK = ("--frames", "40", "--block", "10", "--rate", "0", "--headless")


@pytest.fixture
def no_opengl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Play in this process, without OpenGL, in an empty folder."""
    monkeypatch.setenv("GAMEGLUE_NO_OPENGL", "1")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("no_opengl")
def test_a_demo_is_profiled(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace, page = tmp_path / "t.json", tmp_path / "r.html"
    assert main(["profile", "digits", *QUICK, "--trace", str(trace), "--html", str(page)]) == 0
    said = capsys.readouterr().out
    assert "blocking calls: 0" in said
    number = r"\d+\.\d\d"
    assert re.search(rf"p99 with inference {number} ms, without {number} ms: [+-]{number} ms", said)
    for words in ("all frames", "with inference", "without inference", "DigitReader.update", "digits on cpu"):
        assert words in said
    events = json.loads(trace.read_text())["traceEvents"]
    check_schema(events)
    spans = [event for event in events if event["ph"] == "X"]
    assert len([e for e in spans if e["cat"] == "frames"]) == 40
    # Inference is paused in half of the frames.
    assert 2 <= len([e for e in spans if e["name"] == "schedule" and "worker" in e["args"]]) // 2 <= 24
    Page(page.read_text(encoding="utf-8"))


@pytest.mark.usefixtures("no_opengl")
def test_another_network_is_kept_in_flight(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--frames", "90", "--block", "30", "--headless", "--in-flight", str(DIGITS), "--no-layers")
    assert main(["profile", "digits", *options]) == 0
    said = capsys.readouterr().out
    answers = re.search(r"in flight +\S+digits\.onnx: (\d+) answers", said)
    assert answers is not None
    assert int(answers[1]) >= 1
    assert "digits on cpu #2" in said


SCRIPT = """
import sys
import numpy as np
from gameglue import App, BackendType, ModelLoader, MonoBehaviour, Worker

class Asker(MonoBehaviour):
    def start(self):
        self.worker = Worker(ModelLoader.load(sys.argv[0].replace("game.py", "digits.onnx")), BackendType.CPU)

    def update(self):
        if not self.app.inference.paused:
            self.worker.schedule(np.zeros((1, 1, 28, 28), np.float32))

    def on_destroy(self):
        self.worker.dispose()

with App("a script's game", headless=True) as app:
    app.scene.create("asker", Asker)
    app.run(frames=5)
"""


@pytest.mark.usefixtures("no_opengl")
def test_a_script_is_profiled_in_the_place_of_its_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "digits.onnx").write_bytes(DIGITS.read_bytes())
    script = tmp_path / "game.py"
    script.write_text(SCRIPT)
    assert main(["profile", str(script), *QUICK]) == 0
    said = capsys.readouterr().out
    assert "a script's game, 40 frames" in said
    assert "Asker.update" in said


@pytest.mark.usefixtures("no_opengl")
@pytest.mark.parametrize(
    ("target", "text", "message"),
    [
        ("nothing.py", None, "there is no script"),
        ("idle.py", "pass", "without calling app.run()"),
        ("digitz", None, "did you mean 'digits'?"),
    ],
)
def test_what_cannot_be_profiled_is_said(
    target: str, text: str | None, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if text is not None:
        Path(target).write_text(text)
    assert main(["profile", target, "--frames", "3"]) == 2
    assert message in capsys.readouterr().err


WAITING = """
import numpy as np
from gameglue import App, BackendType, ModelLoader, MonoBehaviour, Worker

class Waiter(MonoBehaviour):
    def start(self):
        self.worker = Worker(ModelLoader.load("chain.onnx"), BackendType.CPU)

    def update(self):
        if not self.app.inference.paused:
            self.worker.schedule(np.zeros((512, 512), np.float32))
            self.worker.peek_output().download_to_array()

    def on_destroy(self):
        self.worker.dispose()

with App("waits", headless=True) as app:
    app.scene.create("waiter", Waiter)
    app.run()
"""


@pytest.mark.usefixtures("no_opengl")
def test_a_game_that_waits_for_its_network_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    Path("chain.onnx").write_bytes(chain(6, 512))
    Path("waits.py").write_text(WAITING)
    command = ["profile", "waits.py", "--frames", "12", "--block", "6", "--rate", "0", "--no-layers"]
    assert main(command) == 1
    said = capsys.readouterr().out
    counted = re.search(r"blocking calls: (\d+)\n +waits for jobs +(\d+)", said)
    assert counted is not None
    assert counted[1] == counted[2]
    assert 1 <= int(counted[1]) <= 6


@pytest.mark.gl
@pytest.mark.spread("backend", "options")
@pytest.mark.parametrize(
    ("backend", "options"),
    [
        ("cpu", ()),
        ("gl_compute", ("--backend", "gpu_compute", "--device", "gl")),
        ("gl_pixel", ("--backend", "gpu_pixel")),
        ("opencl", ("--backend", "gpu_compute", "--device", "opencl")),
    ],
)
def test_no_backend_blocks_a_frame(
    backend: str, options: tuple[str, ...], run_child: Callable[..., str], tmp_path: Path
) -> None:
    trace = tmp_path / "t.json"
    arguments = ["profile", "digits", *QUICK, "--no-layers", "--trace", str(trace), *options]
    said = run_child(f"from gameglue.cli import main\nraise SystemExit(main({arguments!r}))")
    assert "blocking calls: 0" in said
    assert f"digits on {backend}" in said
    events = json.loads(trace.read_text())["traceEvents"]
    check_schema(events)
    if backend != "cpu":
        on_gpu = [e for e in events if e.get("cat") == "gpu" and e["name"] == "commands"]
        assert on_gpu
        assert {e["args"]["worker"] for e in on_gpu} == {f"digits on {backend}"}
