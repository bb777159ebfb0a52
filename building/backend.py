"""Hatchling as a build backend whose wheels need what compiles kernels, and whose other products do not."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import hatchling.build
from hatchling.build import *  # noqa: F403
from hatchling.builders.wheel import WheelBuilder

_NEEDED = ("numpy", "onnx", "protobuf", "ml_dtypes", "numba", "llvmlite", "moderngl")
"""Of the package's own dependencies, those that planning a network and compiling its kernels takes."""


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """Hatchling's own requirements, and what `building.objects` imports."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [text for text in project["dependencies"] if text.split(">")[0] in _NEEDED]
    return [*hatchling.build.get_requires_for_build_wheel(config_settings), *needed]


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: dict[str, Any] | None = None
) -> str:
    """Write the metadata without building the wheel; return the name of its folder.

    Hatchling hides this hook from pip, because build hooks may change the metadata. Without it pip builds the
    whole wheel, kernels included, while it says "Preparing metadata". The hook of this package changes none.
    """
    builder = WheelBuilder(os.getcwd())
    folder = Path(metadata_directory, f"{builder.artifact_project_id}.dist-info")
    folder.mkdir(exist_ok=True)
    text = builder.config.core_metadata_constructor(builder.metadata)
    Path(folder, "METADATA").write_text(text, encoding="utf-8")
    return folder.name
