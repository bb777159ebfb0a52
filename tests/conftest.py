"""Fixtures for tests that need OpenGL, OpenCL or a display, and how they run code in a process of its own."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import hypothesis
import moderngl
import pytest

from engine.backends.table import start_precompilation
from engine.base.errors import DeviceError
from engine.device.cl.device import CLDevice
from engine.device.gl.context_switch import current_platform
from engine.device.gl.device import GLDevice
from engine.device.gl.functions import GL, GLFunctions
from engine.device.native import pool as compile_pool
from gameglue.host.garbage_collection import freeze_garbage_collector
from tests import guards
from tests.scripts import run_script

ROOT = Path(__file__).resolve().parent.parent

# Tests put other rules in place of the engine's, of which the keys of stored plans know nothing; thousands of
# small models are no use on disk either. Tests of stored plans turn them on again.
os.environ.setdefault("GAMEGLUE_STORED_PLANS", "off")
# Threads of Mesa's llvmpipe write to fences that were freed (docs: limits), which now and then crashes a
# process on a busy machine. Without them it draws within the calls.
os.environ.setdefault("LP_NUM_THREADS", "0")
# Hundreds of tests start processes, each of which would compile the packages' source again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# The same holds for the tests themselves, in which pytest rewrites assertions.
sys.dont_write_bytecode = False
# A process that compiles takes as long to start as for a few kernels, and tests need some now and then.
compile_pool.IDLE_SECONDS = 600.0
RunChild = Callable[..., str]

# The same examples in every run; fixtures are made once for all examples of a test, as workers cost time.
hypothesis.settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture, hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("repeatable")

if guards.WANTED:
    guards.install()


@pytest.fixture(scope="session", autouse=True)
def modules_kept() -> Iterator[None]:
    """Collections of garbage, which every run of an app begins with, leave out what was imported."""
    with freeze_garbage_collector():
        yield


@pytest.fixture(autouse=guards.WANTED)
def memory_guards() -> Iterator[None]:
    """Fails a test during which a kernel wrote beside its memory, see `tests.guards`."""
    yield
    guards.check()


@pytest.fixture(scope="session")
def game_context() -> Iterator[moderngl.Context]:
    """The moderngl context of this process's "game". One only, as hundreds fail. Use `game` instead."""
    create: Any = moderngl.create_standalone_context
    try:
        ctx: moderngl.Context = create(**({"backend": "egl"} if sys.platform.startswith("linux") else {}))
    except Exception as error:  # noqa: BLE001 - what glcontext raises
        pytest.skip(f"no OpenGL here: {error}")
    yield ctx
    ctx.release()


@pytest.fixture(scope="session")
def session_device(game_context: moderngl.Context) -> Iterator[GLDevice]:
    """The device of the game's context, shared by all tests. Use `gl_device` instead."""
    device = GLDevice.for_context(game_context)
    yield device
    device.dispose()


@pytest.fixture
def game_gl(game_context: moderngl.Context) -> GLFunctions:
    """Raw OpenGL of the game's context."""
    return GLFunctions(game_context.mglo._context)


@pytest.fixture
def game(game_context: moderngl.Context, game_gl: GLFunctions) -> Iterator[moderngl.Context]:
    """The game's moderngl context, current, without OpenGL errors before the test and after it."""
    # Apps of earlier tests had contexts of their own. Left current for good: their makers are gone.
    game_context.__enter__()
    moderngl._store.default_context = game_context  # type: ignore[attr-defined]
    platform = current_platform()
    assert platform is not None, "the game's context is not current"
    handle = platform.current_context()
    assert game_gl.glGetError() == GL.NO_ERROR, "an earlier test left an OpenGL error in the game's context"
    # moderngl binds the framebuffer that was in use again when it makes another, even one that was released.
    game_context.detect_framebuffer(0).use()
    game_context.enable_only(moderngl.NOTHING)
    yield game_context
    assert platform.current_context() == handle, "the test left another context current"
    assert game_gl.glGetError() == GL.NO_ERROR, "the test caused an OpenGL error in the game's context"


@pytest.fixture
def gl_device(game: moderngl.Context, session_device: GLDevice) -> Iterator[GLDevice]:
    """The device that shares with `game`, its counters at zero, its OpenGL errors checked like the game's."""
    session_device.check_errors("running an earlier test")
    with session_device.current():
        session_device.ctx.screen.use()
    session_device.counters.reset()
    yield session_device
    with session_device.current():
        session_device.collect()
    session_device.check_errors("running this test")


@functools.cache
def why_no_opencl() -> str:
    """Why no kernel runs on OpenCL here; empty where one does."""
    try:
        CLDevice().dispose()
    except DeviceError as error:
        return str(error)
    return ""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what no time is left for, and what needs OpenCL where no kernel runs on it.

    A test says by its mark or by a parameter that it needs OpenCL.
    """
    if reason := left_out(item.config):
        pytest.skip(reason)
    parameters = (
        item.callspec.params.values()
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        else ()
    )
    is_wanted = item.get_closest_marker("opencl") or any(
        value == "opencl" for value in parameters if isinstance(value, str)
    )
    if is_wanted and why_no_opencl():
        pytest.skip(why_no_opencl())


ROUNDS = 8
"""Into how many samples `--minutes` divides the tests; each has some of every module."""

BEGAN = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """What a run does that has less time than the tests take."""
    group = parser.getgroup("samples")
    group.addoption(
        "--minutes", type=float, metavar="N", help="begin no test later than this; those left are skipped"
    )
    group.addoption(
        "--draw", default="", metavar="TEXT", help="which tests come first under --minutes, as a commit"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Remember when the run began, and compile what all of its processes need."""
    config.stash[BEGAN] = time.monotonic()
    if config.getoption("numprocesses", None):
        # The one that gathers others' results has time; all of those would compile it at once.
        start_precompilation()


def left_out(config: pytest.Config) -> str:
    """Why no further test begins; empty while they do."""
    minutes = config.getoption("minutes")
    if minutes is None or time.monotonic() - config.stash[BEGAN] < 60 * minutes:
        return ""
    return f"not begun within {minutes:g} minutes (see --minutes)"


def options_of_child(config: pytest.Config) -> list[str]:
    """Options of pytest in a child process: of a run that has less time, it has at most three minutes."""
    minutes = config.getoption("minutes")
    return [] if minutes is None else ["--minutes", str(min(minutes, 3)), "--draw", config.getoption("draw")]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose parameters for tests marked `spread`, and the order of a run that may end before all began."""
    if not config.getoption("keyword"):
        spread_over_values(items)
    if config.getoption("minutes") is not None:
        draw = config.getoption("draw")
        items.sort(key=lambda item: crc32(f"{draw} {item.nodeid}".encode()) % ROUNDS)


def spread_over_values(items: list[pytest.Item]) -> None:
    """Of tests marked `spread`, leave all values of a parameter but one to the long suite.

    The sets of the other parameters take the values in turn, beginning with one that the test's name decides;
    those of several parameters as combinations. Without names the parameter is the backend. Where `-k`
    chooses tests, a backend among them perhaps, none is left out.
    """
    tests: defaultdict[str, defaultdict[Any, list[pytest.Item]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        mark = item.get_closest_marker("spread")
        if mark is not None and isinstance(item, pytest.Function):
            chosen = mark.args or ("channel",)
            values = item.callspec.params
            assert set(chosen) <= set(values), f"{item.nodeid} has no parameters {chosen} to spread over"
            # Products of parameters refer to the same objects.
            others = frozenset((name, id(value)) for name, value in values.items() if name not in chosen)
            tests[item.nodeid.partition("[")[0]][others].append(item)
    for name, sets in tests.items():
        first = crc32(name.rpartition("::")[2].encode())
        for number, with_values in enumerate(sets.values(), first):
            # Values that the long suite alone has take no turn.
            quick = [item for item in with_values if item.get_closest_marker("long") is None]
            for turn, item in enumerate(quick):
                if turn != number % len(quick):
                    item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def cl_device() -> Iterator[CLDevice]:
    """An OpenCL device, on the processor where there is no other."""
    if why_no_opencl():
        pytest.skip(why_no_opencl())
    device = CLDevice()
    yield device
    device.dispose()


@pytest.fixture(scope="session")
def refusing_runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An OpenCL runtime whose compiler refuses everything, as one older than the processor does."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs Linux and a C compiler (cc)")
    library = tmp_path_factory.mktemp("opencl") / "libstub.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-w", "-o", library, ROOT / "tests" / "opencl_stub.c"], check=True
    )
    return library


@pytest.fixture(scope="session")
def display() -> Iterator[str]:
    """An X display of our own (Xvfb), by its name."""
    program = shutil.which("Xvfb")
    if program is None:
        pytest.skip("Xvfb is not installed")
    read_end, write_end = os.pipe()
    command = [program, "-displayfd", str(write_end), "-screen", "0", "640x480x24", "-nolisten", "tcp"]
    # Without this the server starts over when its last client leaves, and refuses whoever comes meanwhile.
    command.append("-noreset")
    server = subprocess.Popen(
        command, pass_fds=(write_end,), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(write_end)
    with os.fdopen(read_end) as answer:
        number = answer.readline().strip()
    if not number:
        server.wait()
        pytest.skip("Xvfb does not start here")
    yield f":{number}"
    server.terminate()
    server.wait()


@pytest.fixture
def run_child(tmp_path: Path) -> RunChild:
    """`run_child(code, **environment)`: run Python code in its own process and return what it prints.

    The process ends with the test; a failure shows what the code wrote.
    """

    def run(code: str, **environment: str) -> str:
        script = tmp_path / "child.py"
        script.write_text(code, encoding="utf-8")
        variables = {**os.environ, **environment}
        result = run_script(script, folder=Path.cwd(), environment=variables, is_fresh=True)
        assert result.returncode == 0, f"exit code {result.returncode}\n{result.stdout}\n{result.stderr}"
        return result.stdout

    return run


@pytest.fixture
def held_to_3_3(game_context: moderngl.Context) -> dict[str, str]:
    """The environment in which Mesa really refuses what is newer than OpenGL 3.3."""
    if "Mesa" not in game_context.info["GL_VERSION"]:
        pytest.skip("only Mesa's drivers can be held to OpenGL 3.3")
    return {"MESA_GL_VERSION_OVERRIDE": "3.3", "MESA_GLSL_VERSION_OVERRIDE": "330"}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many tests `--minutes` left out; how many of ONNX's operator cases passed, with how many kernels.

    A case leaves its backend's name and its kernels' keys as a property of its report, which also reaches
    the process that gathers those of others.
    """
    reason = left_out(terminalreporter.config)
    skipped = terminalreporter.stats.get("skipped", [])
    if reason and (number := sum(reason in str(report.longrepr) for report in skipped)):
        terminalreporter.write_line(f"{number} tests {reason}")
    passed: Counter[str] = Counter()
    kernels: dict[str, set[str]] = {}
    for report in terminalreporter.stats.get("passed", []):
        for name, value in getattr(report, "user_properties", ()):
            if name == "case" and report.when == "call":
                channel, keys = value
                passed[channel] += 1
                kernels.setdefault(channel, set()).update(keys)
    if passed:
        terminalreporter.section("ONNX operator cases")
        for channel, count in passed.items():
            number = len(kernels[channel])
            terminalreporter.write_line(f"{channel:12}{count:6} passed, {number} distinct kernels")
