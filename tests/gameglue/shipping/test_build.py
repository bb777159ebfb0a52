"""`gameglue build`: what goes into a build, and a built game on a machine without Python."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backends.base import BackendType
from engine.base.errors import InputError
from engine.device.native import NativeSource, NativeStore
from engine.device.native.child_processes import allow_reentry
from engine.device.native.compiler_process import CHILD_ARGUMENT
from engine.device.native.pool import CompilePool
from engine.device.native.prelude import PRELUDE
from engine.runtime.loading.driver_warm_up import warm_up_driver
from gameglue.cli import main
from gameglue.cli.demos import Demo, find_demo, find_demos
from gameglue.cli.new import make_game
from gameglue.shipping import DESCRIPTION
from gameglue.shipping.bundle import build, package_of_demo, package_of_path
from gameglue.shipping.launch import main as launch
from gameglue.shipping.sources import files_of_script, imports_of, outside_imports
from tests.conftest import ROOT
from tests.gameglue.cli.test_play import read_png, report_of

# -- what goes in --------------------------------------------------------------------------------


def test_a_demo_brings_its_modules_its_model_and_no_training(tmp_path: Path) -> None:
    package = package_of_demo(find_demo("digits"))
    placed = {f"{place}/{path.name}" for path, place in package.data}
    assert {"demos/__init__.py", "demos/digits/main.py", "demos/digits/reader.py"} <= placed
    assert package.models == ["assets/digits/digits.onnx"]
    assert not any("train" in name or name.startswith("demos/loops") for name in placed)
    assert package.has_build
    assert "import numpy" in package.imports
    assert not any("demos" in line for line in package.imports)


@pytest.mark.parametrize("demo", find_demos(), ids=lambda demo: demo.name)
def test_every_demo_brings_what_it_names(demo: Demo) -> None:
    package = package_of_demo(demo)
    placed = {f"{place}/{path.name}" for path, place in package.data}
    assert {f"demos/{demo.name}/{path.name}" for path in demo.folder.glob("*.py")} <= placed
    texts = [path.read_text(encoding="utf-8") for path in demo.folder.rglob("*.*") if path.suffix != ".pyc"]
    named = {name for text in texts for name in re.findall(r"""["'](\w+/[\w/.]+)["']""", text)}
    assets = {f"assets/{name}" for name in named if (ROOT / "assets" / name).is_file()}
    assert package.models
    assert assets <= placed
    assert {name for name in assets if name.endswith(".onnx")} <= set(package.models)


def test_a_folder_brings_everything_but_what_runs_leave_behind(tmp_path: Path) -> None:
    folder = tmp_path / "game"
    make_game(folder)
    for name in ("out/s.png", "dist/game/x", ".git/config", "__pycache__/main.pyc", "assets/levels/1.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text('{"model": "digits/digits.onnx"}', encoding="utf-8")
    package = package_of_path(folder)
    placed = {f"{place}/{path.name}" for path, place in package.data}
    assert placed == {
        *(f"game/{name}.py" for name in ("chaser", "main", "make_assets", "make_model")),
        *(f"game/assets/{name}.png" for name in ("ship", "sky", "star")),
        *("game/README.md", "game/assets/chime.wav", "game/assets/steering.onnx", "game/assets/game.scene"),
        "game/assets/levels/1.json",
        "assets/digits/digits.onnx",  # gameglue's own, as the level names it
    }
    assert "import onnx" in package.imports
    assert not any("chaser" in line for line in package.imports)


def test_a_script_brings_what_it_imports_by_whatever_way(tmp_path: Path) -> None:
    (tmp_path / "my game.py").write_text("import one\nfrom pack.inner import x\n", encoding="utf-8")
    (tmp_path / "one.py").write_text("def f():\n    import two, json\n", encoding="utf-8")
    (tmp_path / "two.py").write_text("from csv import *\nfrom . import never\n", encoding="utf-8")
    (tmp_path / "stranger.py").write_text("", encoding="utf-8")
    (tmp_path / "pack").mkdir()
    for name in ("__init__", "inner"):
        (tmp_path / f"pack/{name}.py").write_text("import wave as w\n", encoding="utf-8")
    files = files_of_script(tmp_path / "my game.py")
    names = {path.relative_to(tmp_path).as_posix() for path in files}
    assert names == {"my game.py", "one.py", "two.py", "pack/__init__.py", "pack/inner.py"}
    assert outside_imports(files, tmp_path) == ["import csv", "import json", "import wave"]
    package = package_of_path(tmp_path / "my game.py")
    assert (package.name, package.main, package.has_build) == ("my game", "game/my game.py", False)


def test_what_is_no_python_is_told(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import (", encoding="utf-8")
    with pytest.raises(InputError, match=r"bad\.py is not Python"):
        list(imports_of(tmp_path / "bad.py"))
    with pytest.raises(InputError, match="there is no game at"):
        package_of_path(tmp_path / "missing")


def test_without_pyinstaller_there_is_a_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        "gameglue.shipping.bundle.find_spec", lambda name: None if name == "PyInstaller" else find_spec(name)
    )
    assert main(["build", "digits"]) == 2
    assert 'pip install "gameglue[build]"' in capsys.readouterr().err


def test_a_folder_that_no_build_made_is_left_alone(tmp_path: Path) -> None:
    mine = tmp_path / "digits" / "thesis.txt"
    mine.parent.mkdir()
    mine.write_text("years of work", encoding="utf-8")
    with pytest.raises(InputError, match="no build made it"):
        build(package_of_demo(find_demo("digits")), tmp_path)
    assert mine.exists()


# -- the launcher, without PyInstaller --------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GAMEGLUE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_first_launch_makes_ready_and_later_ones_do_not(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "bundle"
    make_game(bundle / "game")
    described = {"name": "mine", "main": "game/main.py", "has_build": True, "digest": "1"}
    described["models"] = ["game/assets/steering.onnx"]
    (bundle / DESCRIPTION).write_text(json.dumps(described), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for told in (True, False):
        assert launch(["--headless", "--frames", "3", "--backend", "cpu"], bundle) == 0
        assert ("first launch" in capsys.readouterr().err) == told
        sys.modules.pop("main", None)
        sys.modules.pop("chaser", None)
    assert report_of(tmp_path / "out" / "mine.json")["frames"] == 3
    assert len(list((cache / "games").iterdir())) == 1


# -- for real -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """How a built program ended, and which programs ran meanwhile."""

    status: int
    errors: str
    programs: frozenset[str]
    libraries: frozenset[str]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo `digits`, built."""
    pytest.importorskip("PyInstaller")
    output = tmp_path_factory.mktemp("built")
    done = subprocess.run(
        [sys.executable, "-m", "gameglue", "build", "digits", "--output", str(output)],
        cwd=output,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return output / "digits" / ("digits.exe" if sys.platform == "win32" else "digits")


def watched(program: Path, folder: Path, *options: str) -> Run:
    """Run a built program with a home of its own and nothing on its path, and look at its processes."""
    environment = {"HOME": str(folder / "home"), "PATH": "", "GAMEGLUE_CACHE_DIR": ""}
    if sys.platform == "win32":
        environment |= {name: os.environ[name] for name in ("SYSTEMROOT", "TEMP") if name in os.environ}
        environment["LOCALAPPDATA"] = str(folder / "home")
    programs: set[str] = set()
    libraries: set[str] = set()
    with open(folder / "errors.txt", "w+", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [str(program), *options],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
        end = time.monotonic() + 600
        while process.poll() is None and time.monotonic() < end:
            for member in _session(process.pid):
                try:
                    programs.add(os.readlink(member / "exe"))
                    maps = (member / "maps").read_text()
                except OSError:
                    continue  # it has ended
                libraries |= {line.split()[-1] for line in maps.splitlines() if ".so" in line}
            time.sleep(0.05)
        process.kill()
        errors.seek(0)
        return Run(process.wait(), errors.read(), frozenset(programs), frozenset(libraries))


def _session(leader: int) -> list[Path]:
    """The processes of a session, as folders of Linux's /proc; none elsewhere."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # Behind the name, which may hold blanks: state, parent, group, session.
            session = (folder / "stat").read_text().rpartition(")")[2].split()[3]
        except OSError:
            continue
        if int(session) == leader:
            found.append(folder)
    return found


@pytest.mark.long
def test_a_built_game_runs_without_python(built: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    options = ("--headless", "--backend", "cpu", "--screenshot", "s.png", "--report", "r.json")
    first = watched(built, tmp_path, *options, "--frames", "200")
    assert first.status == 0, first.errors
    assert "first launch" in first.errors
    assert "Traceback" not in first.errors
    report = report_of(tmp_path / "r.json")
    assert report["frames"] == 200
    assert report["metadata"]["component errors"] == 0
    assert report["metadata"]["readings"] > 0
    picture = read_png(tmp_path / "s.png")
    assert picture.shape[:2] == (640, 960)
    assert len(np.unique(picture.reshape(-1, picture.shape[2]), axis=0)) > 50
    stored = list((tmp_path / "home").rglob("*.o")) if sys.platform.startswith("linux") else []
    if sys.platform.startswith("linux"):
        # It compiled, in processes that are the program itself, with libraries that came along.
        assert stored
        # Python's own `ctypes.util.find_library` asks ldconfig, where the look at its processes may meet it.
        assert {name for name in first.programs if Path(name).name != "ldconfig"} == {str(built)}
        assert any("llvmlite" in name for name in first.libraries)
        ours = [name for name in first.libraries if "python" in name.lower() or "site-packages" in name]
        assert ours
        assert all(name.startswith(str(built.parent)) for name in ours)

    again = watched(built, tmp_path, *options, "--frames", "5")
    assert again.status == 0, again.errors
    assert "first launch" not in again.errors
    assert len(list((tmp_path / "home").rglob("*.o"))) == len(stored)


@pytest.mark.long
def test_a_built_game_compiles_in_itself_started_again(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "executable", str(built))
    monkeypatch.setattr("engine.device.native.child_processes._may_reenter", [])
    allow_reentry()
    started: list[list[str]] = []
    popen = subprocess.Popen

    def start(command: list[str], **options: Any) -> subprocess.Popen[Any]:
        started.append(command)
        return popen(command, **options)

    monkeypatch.setattr(subprocess, "Popen", start)
    text = PRELUDE + "\n\ndef nothing(args, begin, end):\n    pass\n"
    store = NativeStore(tmp_path / "store", CompilePool(limit=1))
    assert len(store.load([NativeSource("nothing", text, "nothing")])) == 1
    assert started == [[str(built), CHILD_ARGUMENT]]


@pytest.mark.long
@pytest.mark.gl
def test_a_built_game_rehearses_in_itself_started_again(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "executable", str(built))
    monkeypatch.setattr("engine.device.native.child_processes._may_reenter", [])
    allow_reentry()
    model = ROOT / "assets/digits/digits.onnx"
    task = "engine.api.freeze_support:run_driver_warm_up"
    assert warm_up_driver(task, model, BackendType.GPU_PIXEL, {"batch": 1}, True)
    assert not warm_up_driver(task, tmp_path / "nowhere.onnx", BackendType.GPU_PIXEL, None, True)


@pytest.mark.long
def test_a_built_script_runs_as_its_own_program(tmp_path: Path) -> None:
    """A job of the game's own is compiled from its source, and the file beside the script is found."""
    pytest.importorskip("PyInstaller")
    folder = tmp_path / "counting"
    (folder / "assets").mkdir(parents=True)
    (folder / "assets" / "word.txt").write_text("hello", encoding="utf-8")
    (folder / "helper.py").write_text(
        "import wave\nfrom gameglue import job\n\n@job\ndef fill(begin, end, x):\n"
        "    for i in range(begin, end):\n        x[i] = 2 * i\n",
        encoding="utf-8",
    )
    (folder / "main.py").write_text(
        "import sys\nimport numpy as np\nfrom gameglue import App, Tensor\nfrom helper import fill\n\n"
        "if __name__ == '__main__':\n"
        "    with App('counting', headless=True) as app:\n"
        "        x = Tensor(np.zeros(3, np.float32))\n"
        "        fill.schedule(x, count=3).complete()\n"
        "        text = f'{app.resources.read_text(\"word.txt\")} {x.download_to_array().tolist()}'\n"
        "        open('said.txt', 'w').write(text + ' ' + ' '.join(sys.argv[1:]))\n"
        "        app.run(frames=2)\n",
        encoding="utf-8",
    )
    program = build(package_of_path(folder), tmp_path / "built")
    (tmp_path / "home").mkdir()
    ran = watched(program, tmp_path, "--loud")
    assert ran.status == 0, ran.errors
    assert (tmp_path / "said.txt").read_text() == "hello [0.0, 2.0, 4.0] --loud"
