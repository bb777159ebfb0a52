"""Hatchling as a build backend whose wheels need what compiles kernels, and whose other products do not."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import hatchling.build
from hatchling.build import *  # noqa: F403

_NEEDED = ("numpy", "onnx", "protobuf", "ml_dtypes", "numba", "llvmlite", "moderngl")
"""Of the package's own dependencies, those that planning a network and compiling its kernels takes."""


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """Hatchling's own requirements, and what `building.objects` imports."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [text for text in project["dependencies"] if text.split(">")[0] in _NEEDED]
    return [*hatchling.build.get_requires_for_build_wheel(config_settings), *needed]
