"""Pictures of the guides: run a page's own code, and keep a screenshot that it saves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from gameglue.cli.animation import with_few_colors

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "pages"
IMAGES = PAGES / "images"


def keep_picture(page: str, name: str, *, width: int = 600, colors: int = 96) -> None:
    """Run `page`, which saves `name`, and write a small copy of that picture to `docs/pages/images`.

    Args:
        page: Path below `docs/pages`.
        name: File name of the PNG that the page's code writes.
        width: Width of the copy in pixels; the height keeps the proportions.
        colors: Size of the copy's palette.
    """
    runner = ROOT / "tests" / "docs" / "pages.py"
    paths = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    with tempfile.TemporaryDirectory() as folder:
        for model in (ROOT / "assets").glob("*/*.onnx"):
            shutil.copy(model, folder)
        subprocess.run(
            [sys.executable, str(runner), str(PAGES / page), "0"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": paths},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        with Image.open(Path(folder, name)) as picture:
            size = width, round(picture.height * width / picture.width)
            small = picture.convert("RGB").resize(size, Image.Resampling.LANCZOS)
    IMAGES.mkdir(parents=True, exist_ok=True)
    target = IMAGES / name
    with_few_colors(small, colors).save(target, optimize=True)
    print(f"{target}: {target.stat().st_size} bytes")
