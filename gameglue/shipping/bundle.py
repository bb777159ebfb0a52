"""Packages a game and everything it needs as one folder with PyInstaller."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from engine.base.errors import InputError
from gameglue.cli.demos import Demo, defines_build, demos_folder
from gameglue.host.resources import packaged_assets
from gameglue.shipping import DESCRIPTION, GAME_FOLDER, hook_folders
from gameglue.shipping.sources import files_of_folder, files_of_script, outside_imports

# Heavy packages that ours import where they are installed, but can do without. A game may import them.
LEFT_OUT = (
    "IPython", "PIL", "PyInstaller", "arcade", "glfw", "hypothesis", "imgui_bundle", "jinja2", "matplotlib",
    "moderngl_window", "mypy", "networkx", "onnxruntime", "onnxscript", "openvino", "pandas", "pip",
    "pygments", "pyglet", "pytest", "scipy", "setuptools", "sklearn", "sympy", "tkinter", "torch", "triton",
)  # fmt: skip

# A graphics driver of the player's system may need newer ones than those of the system that the game was
# built on, and the process has only those that are loaded first. Whoever has such a driver has these too.
LEFT_TO_THE_SYSTEM = ("libstdc++.so.6", "libgcc_s.so.1")

_LAUNCHER = """\
import sys

from engine import freeze_support

freeze_support()

from gameglue.shipping.launch import main

if len(sys.argv) < 0:  # never run: what the game imports, for PyInstaller to see
    {imports}

raise SystemExit(main())
"""

# Windows shows no console then; a program without one has no standard streams, which compiling children need.
_SPECIFICATION = """\
import os

analysis = Analysis(
    [{launcher!r}],
    pathex=[{root!r}],
    datas={data!r},
    hiddenimports={hidden!r},
    hookspath={hooks!r},
    excludes={excluded!r},
)
analysis.binaries = [item for item in analysis.binaries if os.path.basename(item[0]) not in {system!r}]
program = EXE(
    PYZ(analysis.pure),
    analysis.scripts,
    [],
    exclude_binaries=True,
    name={name!r},
    console=True,
    hide_console="hide-early" if os.name == "nt" else None,
    upx=False,
)
COLLECT(program, analysis.binaries, analysis.datas, name={name!r}, upx=False)
"""

_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Package:
    """The contents of a standalone build.

    main: its main file's path in the bundle. data: (file, folder in the bundle). imports: statements.
    """

    name: str
    main: str
    has_build: bool
    data: tuple[tuple[Path, str], ...]
    imports: tuple[str, ...]

    @property
    def models(self) -> list[str]:
        """The models in it, by their paths in the bundle."""
        return [f"{to}/{path.name}" for path, to in self.data if path.suffix == ".onnx"]


def package_of_demo(demo: Demo) -> Package:
    """One of gameglue's own demos."""
    files = files_of_folder(demo.folder)
    base = demos_folder()
    data = [(base / "__init__.py", "demos"), *((path, _place(path, base, "demos")) for path in files)]
    imports = [line for line in outside_imports(files, demo.folder) if f" demos.{demo.name}" not in line]
    main = f"demos/{demo.name}/main.py"
    return Package(demo.name, main, True, (*data, *_assets(files, (demo.name,))), tuple(imports))


def package_of_path(path: Path) -> Package:
    """Describe the build of a game: a folder with a main.py, or a script. Raises `InputError`."""
    path = path.resolve()
    main = path / "main.py" if path.is_dir() else path
    if not main.is_file() or main.suffix != ".py":
        raise InputError(
            f"there is no game at {path}: give a folder with a main.py, a script, or a demo's name"
        )
    folder = main.parent
    files = files_of_folder(folder) if path.is_dir() else files_of_script(main)
    data = [(file, _place(file, folder, GAME_FOLDER)) for file in files]
    return Package(
        folder.name if main.name == "main.py" else main.stem,
        f"{GAME_FOLDER}/{main.name}",
        defines_build(main),
        (*data, *_assets(files)),
        tuple(outside_imports(files, folder)),
    )


def _place(path: Path, base: Path, top: str) -> str:
    """The folder of a file within the bundle."""
    return "/".join((top, *path.parent.relative_to(base).parts))


def _assets(files: Iterable[Path], named: Iterable[str] = ()) -> list[tuple[Path, str]]:
    """What a game takes of gameglue's own assets: each folder that its files name as `"folder/..."`."""
    own = packaged_assets()
    if own is None:
        return []
    texts = [path.read_text(encoding="utf-8", errors="ignore") for path in files if _is_text(path)]
    found = []
    for folder in sorted(place for place in own.iterdir() if place.is_dir()):
        mentioned = re.compile(rf"""["'/]{re.escape(folder.name)}/""")
        if folder.name in named or any(mentioned.search(text) for text in texts):
            found += [(path, _place(path, own, "assets")) for path in _needed_to_play(folder)]
    return found


def _is_text(path: Path) -> bool:
    return path.suffix in (".py", ".scene", ".prefab", ".json", ".toml", ".yaml", ".yml", ".txt")


def _needed_to_play(folder: Path) -> list[Path]:
    return [path for path in files_of_folder(folder) if path.suffix not in (".py", ".md")]


def missing_builder() -> str | None:
    """Advice for when PyInstaller is not installed."""
    if find_spec("PyInstaller") is not None:
        return None
    return 'building needs PyInstaller; install it: pip install "gameglue[build]"'


def build(package: Package, output: Path) -> Path:
    """Build the folder `output / package.name`, and return the path of its executable.

    What an earlier build left there is replaced. Raises `InputError` where something else is in the way, and
    where PyInstaller fails.
    """
    folder = output.resolve() / package.name
    if folder.exists() and not (folder / "_internal" / DESCRIPTION).is_file():
        raise InputError(f"{folder} is there already, and no build made it: move it away, or choose --output")
    with tempfile.TemporaryDirectory(prefix="gameglue-build-") as work:
        _run(_specification(package, Path(work)), output.resolve(), Path(work))
    return folder / (package.name + (".exe" if sys.platform == "win32" else ""))


def _specification(package: Package, work: Path) -> Path:
    """Write what PyInstaller needs to know; returns its specification, a Python file of PyInstaller's own."""
    launcher = work / "launcher.py"
    imports = "\n    ".join(package.imports) or "pass"
    launcher.write_text(_LAUNCHER.format(imports=imports), encoding="utf-8")
    described = {
        "name": package.name,
        "main": package.main,
        "has_build": package.has_build,
        "models": package.models,
        "digest": _digest(package),
    }
    (work / DESCRIPTION).write_text(json.dumps(described), encoding="utf-8")
    wanted = {re.split(r"[ .]", line)[1] for line in package.imports}
    text = _SPECIFICATION.format(
        name=package.name,
        launcher=str(launcher),
        root=str(_ROOT),
        data=[(str(work / DESCRIPTION), "."), *((str(path), place) for path, place in package.data)],
        hidden=["pyopencl"] if find_spec("pyopencl") is not None else [],
        hooks=hook_folders(),
        excluded=[name for name in LEFT_OUT if name not in wanted],
        system=LEFT_TO_THE_SYSTEM,
    )
    specification = work / "game.spec"
    specification.write_text(text, encoding="utf-8")
    return specification


def _digest(package: Package) -> str:
    """Changes with the game's files: another build of it may have other kernels to compile."""
    digest = hashlib.sha256()
    for path, place in sorted(package.data):
        digest.update(f"{place}/{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _run(specification: Path, output: Path, work: Path) -> None:
    """Run PyInstaller. Raises `InputError` with the last lines of its output."""
    command = [sys.executable, "-m", "PyInstaller", "--noconfirm", "--log-level", "WARN"]
    command += ["--distpath", str(output), "--workpath", str(work / "work"), str(specification)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(_ROOT), os.environ.get("PYTHONPATH", ""))),
    }
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode != 0:
        raise InputError("PyInstaller failed:\n" + "\n".join(done.stderr.splitlines()[-30:]))


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
