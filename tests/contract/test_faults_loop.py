"""Errors of the game's own code inside the loop, and Ctrl-C in the middle of a frame."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gameglue.host.interrupts import is_engine_at_work
from tests.contract.faults import DIGITS

ROOT = Path(__file__).parents[2]
RunChild = Callable[..., str]

ERRORS = """
import logging, sys, time
import numpy as np
from gameglue import App, ModelLoader, MonoBehaviour, Worker
logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stdout)
image = np.ones((1, 1, 28, 28), np.float32)

class Asks(MonoBehaviour):
    answers = 0
    def start(self):
        self.worker = Worker(ModelLoader.load(DIGITS))
    def update(self):
        self.worker.schedule(image)
        self.app.inference.result(self.worker.peek_output(), self.take)
    def take(self, result):
        Asks.answers += 1
        if Asks.answers == 2:
            raise ValueError("from a result callback")
    def on_destroy(self):
        self.worker.dispose()

class Hook(MonoBehaviour):
    def late_update(self):
        raise ValueError("from a hook")

class Waits(MonoBehaviour):
    async def start(self):
        await self.app.next_frame()
        raise ValueError("from an async hook")

class Generates(MonoBehaviour):
    def start(self):
        self.start_coroutine(self.routine())
    def routine(self):
        yield
        raise ValueError("from a coroutine")

class Ends(MonoBehaviour):
    def on_destroy(self):
        raise ValueError("from on_destroy")

with App("errors", size=(32, 32), headless=True) as app:
    for kind in (Asks, Hook, Waits, Generates, Ends):
        app.scene.create(kind.__name__, kind)
    app.run(frames=30)
    frames = app.time.frame_count
    while Asks.answers < 2 and app.time.frame_count < 3000:  # a busy machine answers later
        app.step()
        time.sleep(0.01)
    print("frames", frames, "answers", Asks.answers)
print("end")
"""


def test_what_the_games_code_raises_is_logged_and_the_loop_goes_on(run_child: RunChild) -> None:
    said = run_child(f"DIGITS = {str(DIGITS)!r}\n{ERRORS}")
    for where in ("a result callback", "a hook", "an async hook", "a coroutine", "on_destroy"):
        assert said.count(f"ValueError: from {where}") == 1, where
    assert said.count("Traceback") == 5
    assert said.rstrip().endswith("end")
    frames, answers = said.split("frames ")[1].split()[0], said.split("answers ")[1].split()[0]
    assert int(frames) == 30
    assert int(answers) >= 2


INTERRUPTED = """
import logging, sys, threading, time
import numpy as np
from gameglue import App, BackendType, ModelLoader, MonoBehaviour, Worker
from tests.networks import light_network
logging.basicConfig(format="%(levelname)s %(message)s")
kind, device = {"cpu": (BackendType.CPU, None), "gl_pixel": (BackendType.GPU_PIXEL, "gl"),
                "gl_compute": (BackendType.GPU_COMPUTE, "gl"),
                "opencl": (BackendType.GPU_COMPUTE, "opencl")}[CHANNEL]
image = np.ones((1, 3, 224, 224), np.float32)

class Game(MonoBehaviour):
    def start(self):
        self.worker = None
        if WHERE == "making a worker":
            print("ready", flush=True)
        self.worker = Worker(ModelLoader.load(light_network("squeezenet")), kind, device=device)
        self.worker.schedule(image)
        self.worker.peek_output().download_to_array()
        print("ready", flush=True)
    def update(self):
        if WHERE == "update":
            time.sleep(60)
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            self.worker.schedule(image)
            if WHERE == "a blocking readback":
                self.worker.peek_output().download_to_array()
    def on_application_quit(self):
        print("quit hook", flush=True)
    def on_destroy(self):
        if self.worker is not None:
            self.worker.dispose()
        print("destroyed", flush=True)

with App("interrupted", size=(32, 32), headless=True, on_error="raise") as app:
    app.scene.create("game", Game)
    app.run()
    assert app.was_interrupted
print("threads", sorted(t.name for t in threading.enumerate() if not t.daemon))
sys.exit(7)
"""


def processes_of(mark: str) -> list[str]:
    """Processes of this machine that have an environment variable of this test."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text(errors="replace"))
        except OSError:
            continue
    return found


def interrupt(code: str, tmp_path: Path, after: float, cold: bool = False) -> tuple[int, str, str]:
    """Run code, press Ctrl-C some seconds after it says "ready"; exit code, and what it wrote."""
    script = tmp_path / "child.py"
    script.write_text(code, encoding="utf-8")
    mark = f"INTERRUPTED_TEST={tmp_path}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "INTERRUPTED_TEST": str(tmp_path)}
    if cold:
        environment["GAMEGLUE_CACHE_DIR"] = str(tmp_path / "cache")
    # A group of its own, as a terminal makes it: Ctrl-C reaches the children as well.
    child = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", str(script)],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert child.stdout is not None
    said = ""
    while "ready" not in said:
        line = child.stdout.readline()
        assert line or child.poll() is None, child.communicate()
        said += line
    time.sleep(after)
    os.killpg(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=240)
    end = time.monotonic() + 60
    while processes_of(mark) and time.monotonic() < end:
        time.sleep(0.05)
    assert processes_of(mark) == []
    return child.returncode, said + out, err


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for left processes in /proc")
@pytest.mark.parametrize(
    ("where", "channel"),
    [
        ("update", "cpu"),
        *(
            pytest.param("schedule", channel, marks=pytest.mark.long)
            for channel in ("cpu", "gl_pixel", "gl_compute", "opencl")
        ),
        pytest.param("a blocking readback", "cpu", marks=pytest.mark.long),
        pytest.param("a blocking readback", "gl_pixel", marks=pytest.mark.long),
    ],
)
@pytest.mark.gl
@pytest.mark.opencl
def test_ctrl_c_ends_the_game_with_one_message(where: str, channel: str, tmp_path: Path) -> None:
    code = f"WHERE = {where!r}\nCHANNEL = {channel!r}\n{INTERRUPTED}"
    status, said, errors = interrupt(code, tmp_path, 0.35)
    assert status == 7, errors
    assert errors.count("interrupted in frame") == 1
    assert "Traceback" not in errors
    assert said.split()[1:4] == ["quit", "hook", "destroyed"]
    assert "threads ['MainThread']" in said


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for left processes in /proc")
def test_ctrl_c_while_a_worker_compiles_leaves_no_process_behind(tmp_path: Path) -> None:
    code = f"WHERE = 'making a worker'\nCHANNEL = 'cpu'\n{INTERRUPTED}"
    status, said, errors = interrupt(code, tmp_path, 1.5, cold=True)
    assert status == 7, errors
    assert errors.count("interrupted in frame") == 1
    assert "Traceback" not in errors
    assert "quit hook" in said


PLAIN = """
from gameglue import ModelLoader, Worker
from tests.networks import light_network
model = ModelLoader.load(light_network("squeezenet"))
print("ready", flush=True)
Worker(model)
print("made")
"""


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for left processes in /proc")
def test_ctrl_c_in_a_script_of_ones_own_is_pythons(tmp_path: Path) -> None:
    status, said, errors = interrupt(PLAIN, tmp_path, 1.5, cold=True)
    assert status == -signal.SIGINT
    assert "made" not in said
    assert errors.count("KeyboardInterrupt") == 1


def test_the_game_is_told_from_the_engine() -> None:
    """This test is the game's code; a function that the engine calls is too, one of the engine's is not."""
    assert not is_engine_at_work(sys._getframe())
    names = {"__name__": "engine.api.worker", "frame": sys._getframe, "of_the_game": lambda: sys._getframe()}
    exec("def here(): return frame()\ndef calls_the_game(): return of_the_game()", names)
    assert is_engine_at_work(names["here"]())  # type: ignore[operator]
    assert not is_engine_at_work(names["calls_the_game"]())  # type: ignore[operator]
    assert not is_engine_at_work(None)
