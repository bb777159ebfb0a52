"""`gameglue inspect MODEL --texture IMAGE`: what it prints and what is in the preview."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pygame
import pytest

from engine import InputError
from gameglue.cli import main
from gameglue.cli.texture_input import transform_of
from tests.graphs import node, proto

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Red above blue, 8 x 6 pixels."""
    pixels = np.zeros((6, 8, 3), np.uint8)
    pixels[:3], pixels[3:] = (255, 0, 0), (0, 0, 255)
    path = tmp_path / "flag.png"
    pygame.image.save(pygame.image.frombytes(pixels.tobytes(), (8, 6), "RGB"), str(path))
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    shape = (1, 3, 4, 4)
    path.write_bytes(
        proto([node("Relu", ["x"], ["y"])], {"x": ("float32", shape)}, {"y": ("float32", shape)})
    )
    return path


def test_the_preview_shows_channels_as_they_lie_in_memory(
    model: Path, image: Path, tmp_path: Path, capsys: Capture
) -> None:
    preview = tmp_path / "out" / "preview.png"
    settings = [
        "--transform",
        "swizzle=bgr",
        "--transform",
        "origin=bottom_left",
        "--transform",
        "resampling=area",
    ]
    assert main(["inspect", str(model), "--texture", str(image), *settings, "--preview", str(preview)]) == 0
    printed = capsys.readouterr().out
    assert "float32 [1, 3, 4, 4] (NCHW)" in printed
    assert "row 0 of the tensor: bottom_left" in printed
    rows = {line.split()[1]: line.split()[2:] for line in printed.splitlines()[-3:]}
    assert rows == {"b": ["0", "0.5", "1"], "g": ["0", "0", "0"], "r": ["0", "0.5", "1"]}
    shown = pygame.surfarray.array3d(pygame.image.load(str(preview))).transpose(1, 0, 2)
    # Blue is the first channel, and lies in the tensor's first rows; the picture itself is shown upright.
    top, bottom = shown[48], shown[-36]
    assert (top == (255, 0, 0)).all(1).sum() > 100
    assert (bottom == (0, 0, 255)).all(1).sum() > 100
    assert (top == (255, 255, 255)).all(1).sum() > 100
    assert (bottom == (255, 255, 255)).all(1).sum() > 100
    white_first = np.flatnonzero((top == (255, 255, 255)).all(1)).min()
    assert white_first < np.flatnonzero((bottom == (255, 255, 255)).all(1)).min()


def test_what_cannot_be_shown_is_one_line(model: Path, image: Path, capsys: Capture) -> None:
    assert main(["inspect", str(model), "--texture", f"z={image}"]) == 2
    assert "no input 'z' for an image; the model's inputs: x: float32" in capsys.readouterr().err
    assert main(["inspect", str(model), "--texture", str(model)]) == 2
    assert "is not a picture" in capsys.readouterr().err
    assert main(["inspect", str(model), "--texture", str(image), "--transform", "colour=bgr"]) == 2
    assert "--transform is written as NAME=VALUE, not 'colour=bgr'" in capsys.readouterr().err


def test_transforms_on_the_command_line() -> None:
    how = transform_of(
        ["size=32x24", "std=0.5,0.25,0.5", "mean=0.5", "swizzle=rgb", "color=linear", "layout=nhwc"]
    )
    assert (how.width, how.height, how.channels) == (32, 24, 3)
    assert how.scale == (2.0, 4.0, 2.0)
    assert how.offset == (-1.0, -2.0, -1.0)
    assert how.is_channels_last
    assert transform_of(["scale=255", "dtype=uint8"]).scale == (255.0,)
    for wrong in ("size=32", "scale=a", "swizzle=xyz", "origin=left", "dtype=float99"):
        with pytest.raises(InputError):
            transform_of([wrong])
