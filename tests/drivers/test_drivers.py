"""The suites that use OpenGL, under other drivers than the one that is there anyway, each in its own process.

A sample is part of the long suites. `GAMEGLUE_DRIVERS=all python -m pytest -m long tests/drivers` runs all
that the table has (`tests/drivers/table.py`), `GAMEGLUE_DRIVERS=zink,softpipe` what it has for some drivers.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gameglue.cli.demos import find_demos
from tests.conftest import ROOT
from tests.drivers.table import DRIVERS, Driver

pytestmark = [pytest.mark.long, pytest.mark.gl]

_CHOSEN = os.environ.get("GAMEGLUE_DRIVERS", "")
_SECONDS = 3600

RENDERER = """
import moderngl
print(moderngl.create_standalone_context(backend="egl").info["GL_RENDERER"])
"""


def environment_of(driver: Driver, home: Path) -> dict[str, str]:
    """The environment of a child that draws with a driver; `home`: for what Mesa wants to write."""
    env = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    env.pop("DISPLAY", None)
    return {**env, "PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": str(home), **driver.environment}


@functools.cache
def why_not(driver: Driver, home: Path) -> str:
    """Why the driver cannot be used here; empty where it can."""
    try:
        answer = subprocess.run(
            [sys.executable, "-c", RENDERER],
            env=environment_of(driver, home),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    except OSError as error:
        return str(error)
    renderer = answer.stdout.strip()
    if answer.returncode == 0 and renderer.startswith(driver.renderer):
        return ""
    found = f"found {renderer}" if renderer else answer.stderr.strip().rpartition("\n")[2]
    return f"{driver.name} is not here ({found}); install {driver.package}"


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private folder."""
    folder = tmp_path_factory.mktemp("runtime")
    folder.chmod(0o700)
    return folder


def _test_files(place: str) -> list[str]:
    path = ROOT / place
    found = [path] if path.is_file() else sorted(path.rglob("test_*.py"))
    return [file.relative_to(ROOT).as_posix() for file in found]


def _cases() -> list[tuple[Driver, str]]:
    """What is run: each file of each driver that was chosen, without a choice the samples."""
    cases = []
    for driver in DRIVERS:
        places = driver.sample
        if _CHOSEN == "all" or driver.name in _CHOSEN.split(","):
            places += driver.files
        files = [file for place in places for file in _test_files(place)]
        cases += [(driver, file) for file in dict.fromkeys(files)]
    return cases


def _demos() -> list[tuple[Driver, str, str]]:
    """A demo under each driver; all of them under those that were chosen."""
    cases = []
    for driver in DRIVERS:
        is_chosen = _CHOSEN == "all" or driver.name in _CHOSEN.split(",")
        names = [demo.name for demo in find_demos()] if is_chosen else ["digits"]
        cases += [(driver, name, backend) for name in names for backend in driver.backends]
    return cases


def _name(part: Driver | str) -> str:
    return part.name if isinstance(part, Driver) else part


@pytest.mark.parametrize(("driver", "file"), _cases(), ids=_name)
def test_a_suite_passes_under_another_driver(driver: Driver, file: str, home: Path) -> None:
    reason = why_not(driver, home)
    if reason:
        pytest.skip(reason)
    chosen = " and ".join([f"({driver.chosen})", *(f"not {name}" for name in driver.left_out)])
    command = [sys.executable, "-X", "faulthandler", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [*command, "-k", chosen, file],
        cwd=ROOT,
        env=environment_of(driver, home),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    # 5: the file has no test that the driver is given.
    assert run.returncode in (0, 5), run.stdout[-8000:] + run.stderr[-4000:]


@pytest.mark.parametrize(("driver", "demo", "backend"), _demos(), ids=_name)
def test_a_demo_plays_under_another_driver(
    driver: Driver, demo: str, backend: str, home: Path, tmp_path: Path
) -> None:
    reason = why_not(driver, home)
    if reason:
        pytest.skip(reason)
    picture = tmp_path / "picture.png"
    command = [sys.executable, "-X", "faulthandler", "-m", "gameglue", "play", demo, "--headless"]
    options = ["--frames", "20", "--size", "240x160", "--seed", "1", "--backend", backend]
    run = subprocess.run(
        [*command, *options, "--screenshot", str(picture)],
        cwd=ROOT,
        env=environment_of(driver, home),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert picture.stat().st_size > 0
