"""Adds object code of common kernels to a wheel; see `building.objects`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ObjectsHook(BuildHookInterface[Any]):
    """Compiles kernels before files are collected. `GAMEGLUE_PREBUILT=off` builds a wheel without them."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Have the files included; an editable install has none, as its kernels change with the sources."""
        if version != "standard" or os.environ.get("GAMEGLUE_PREBUILT") == "off":
            return
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        own = {"GAMEGLUE_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": _path(self.root)}
        command = [sys.executable, "-m", "building.objects", str(folder / "objects")]
        if subprocess.run(command, cwd=self.root, env={**os.environ, **own}, check=False).returncode:
            self.app.display_warning("no kernels could be compiled: players' machines will compile them all")
            return
        for file in sorted((folder / "objects").iterdir()):
            build_data["force_include"][str(file)] = f"engine/device/native/objects/{file.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()


def _path(root: str) -> str:
    """The tree that is built goes before an installed version of it."""
    return os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
