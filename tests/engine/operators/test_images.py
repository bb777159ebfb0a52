"""ImageDecoder on files that Pillow wrote, broken files, and without Pillow."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest

from engine import BackendType, Worker
from engine.base.errors import ShapeError
from tests.engine.conftest import answers
from tests.engine.operators.single import one_layer, run

PIXELS = np.random.default_rng(2).integers(0, 256, (6, 8, 3)).repeat(4, 0).repeat(4, 1).astype(np.uint8)


def stored(format_: str, pixels: np.ndarray = PIXELS, mode: str | None = None) -> np.ndarray:
    """The bytes of an image file."""
    image = pytest.importorskip("PIL.Image").fromarray(pixels)
    with io.BytesIO() as file:
        (image.convert(mode) if mode else image).save(file, format=format_)
        return np.frombuffer(file.getvalue(), np.uint8)


@pytest.mark.parametrize("format_", ["bmp", "png", "ppm", "tiff"])
def test_files_without_loss(format_: str) -> None:
    data = stored(format_)
    np.testing.assert_array_equal(run("ImageDecoder", [data])[0], PIXELS)
    np.testing.assert_array_equal(run("ImageDecoder", [data], {"pixel_format": "BGR"})[0], PIXELS[:, :, ::-1])
    (gray,) = run("ImageDecoder", [data], {"pixel_format": "Grayscale"})
    # ITU-R 601 luma.
    assert abs(gray[:, :, 0] - PIXELS @ [0.299, 0.587, 0.114]).max() <= 1
    assert gray.shape == (24, 32, 1)


@pytest.mark.parametrize("format_", ["jpeg", "jpeg2000", "webp"])
def test_files_with_loss(format_: str) -> None:
    smooth = np.linspace(0, 255, 24 * 32).reshape(24, 32, 1).repeat(3, 2).astype(np.uint8)
    (found,) = run("ImageDecoder", [stored(format_, smooth)])
    assert found.shape == smooth.shape
    assert abs(found.astype(int) - smooth).mean() < 4


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "1"])
def test_every_kind_of_pixel_becomes_three_channels(mode: str) -> None:
    (found,) = run("ImageDecoder", [stored("png", mode=mode)])
    assert found.shape == PIXELS.shape


def test_what_is_no_image_of_a_known_format_is_empty() -> None:
    png = stored("png")
    for data in (png[:0], png[:40], png[8:], stored("gif")):
        for name, channels in (("RGB", 3), ("Grayscale", 1)):
            (found,) = run("ImageDecoder", [data], {"pixel_format": name})
            assert found.shape == (0, 0, channels)


def test_a_worker_decodes() -> None:
    data = stored("png")
    with Worker(one_layer("ImageDecoder", [data], dynamic=(0,)), BackendType.CPU) as worker:
        np.testing.assert_array_equal(answers(worker, data)[0], PIXELS)


def test_errors_name_the_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.zeros(4, np.uint8)
    with pytest.raises(ShapeError, match="layer 'it' \\(ImageDecoder\\): pixel_format is 'YUV'; one of RGB"):
        run("ImageDecoder", [data], {"pixel_format": "YUV"})
    with pytest.raises(ShapeError, match="encoded_stream holds float32; the operator takes integers"):
        run("ImageDecoder", [data.astype(np.float32)])
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ShapeError, match="pip install pillow"):
        run("ImageDecoder", [data])
