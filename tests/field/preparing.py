"""Sources of models: what each needs installed, and where what it made is cached."""

from __future__ import annotations

import ast
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.base.cache import cache_dir

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
DONE = "done"
STANDARD_ERROR = 2
"""The file itself: a test may have put something else in the place of `sys.stderr`."""


class SourceFailed(Exception):
    """A source, or what it needs, ended badly; why is on standard error."""


@dataclass(frozen=True)
class Source:
    """A module of `tests.field.sources`.

    environment: whose packages it imports: "here", "field" (the extra of that name), or the name of a list in
    `requirements/`. of: sources whose models it transforms.
    """

    name: str
    environment: str = "here"
    of: tuple[str, ...] = ()


SOURCES = (
    Source("published"),
    Source("exported", "field"),
    Source("keras_models", "keras"),
    Source("jax_models", "jax"),
    Source("paddle_models", "paddle"),
    Source("brevitas_models", "brevitas"),
    Source("detectors", "detectors"),
    Source("sklearn_models", "sklearn"),
    Source("genai", "genai"),
    Source("optimum_models", "optimum"),
    Source("transformed", "transformed", of=("published", "exported")),
)


def requirements(environment: str) -> list[str]:
    """The pinned packages of an environment."""
    if environment == "field":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        return list(project["optional-dependencies"]["field"])
    lines = (HERE / "requirements" / f"{environment}.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def interpreter(environment: str) -> Path:
    """A Python that has an environment's packages; installs them the first time.

    `GAMEGLUE_FIELD_<NAME>` names one that is there already.
    """
    if environment == "here":
        return Path(sys.executable)
    named = os.environ.get(f"GAMEGLUE_FIELD_{environment.upper()}")
    if named:
        return Path(named)
    wanted = requirements(environment)
    folder = _cache("environments") / f"{environment}-{_key(*wanted, sys.version)}"
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    if not (folder / DONE).exists():
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet"]
        # torchvision wants the build of torch it was made for; these networks need none of its own operators.
        alone = [line for line in wanted if line.startswith(("torchvision", "ultralytics"))]
        _run([*pip, *(line for line in wanted if line not in alone)])
        if alone:
            _run([*pip, "--no-deps", *alone])
        (folder / DONE).touch()
    return python


def prepare(source: Source, options: Sequence[str] = ()) -> Path:
    """The folder of a source's models; makes them the first time. Raises `SourceFailed`."""
    environment = [] if source.environment == "here" else requirements(source.environment)
    names = (source.name, *source.of)
    files = modules(HERE / "sources" / f"{name}.py" for name in names)
    code = [path.read_text(encoding="utf-8") for path in files]
    folder = _cache("models") / f"{source.name}-{_key(*environment, *code, *options)}"
    if (folder / DONE).exists():
        return folder
    of = [str(prepare(other)) for other in SOURCES if other.name in source.of]
    shutil.rmtree(folder, ignore_errors=True)
    command = [str(interpreter(source.environment)), "-m", f"tests.field.sources.{source.name}", str(folder)]
    _run([*command, *of, *options])
    (folder / DONE).touch()
    return folder


def modules(files: Iterable[Path]) -> list[Path]:
    """The modules in `files` and those of `tests` that they import, directly or not."""
    found: set[Path] = set()
    left = list(files)
    while left:
        path = left.pop()
        if path in found or not path.exists():
            continue
        found.add(path)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
                left.append(ROOT.joinpath(*str(node.module).split(".")).with_suffix(".py"))
    return sorted(found)


def _run(command: Sequence[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=STANDARD_ERROR, check=False)
    if done.returncode:
        raise SourceFailed(f"exit code {done.returncode} of: {' '.join(command)}")


def _cache(name: str) -> Path:
    folder = cache_dir("field", name)
    if folder is None:
        raise SourceFailed("there is no cache folder to keep models in")
    return folder


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
