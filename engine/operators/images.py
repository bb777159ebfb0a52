"""Decodes image files to tensors on the host, by Pillow."""

from __future__ import annotations

import io

import numpy as np

from engine.operators.registry import operator

FORMATS = ("BMP", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""What the operator takes, by Pillow's names; PPM stands for all portable formats."""
CHANNELS = {"RGB": 3, "BGR": 3, "Grayscale": 1}


@operator("ImageDecoder", kind="numpy", since=20)
def image_decoder(encoded_stream: np.ndarray, *, pixel_format: str = "RGB") -> np.ndarray:
    """The bytes of an image file as (height, width, channels) uint8; (0, 0, channels) if they are not one."""
    if pixel_format not in CHANNELS:
        raise ValueError(f"pixel_format is {pixel_format!r}; one of {', '.join(CHANNELS)}")
    if encoded_stream.dtype != np.uint8 or encoded_stream.ndim != 1:
        shown = f"{encoded_stream.dtype.name}{list(encoded_stream.shape)}"
        raise ValueError(f"takes the bytes of a file as uint8[n], not {shown}")
    try:
        # Optional: only models that decode images need it.
        from PIL import Image
    except ImportError as error:
        raise ImportError("decoding images needs Pillow: pip install pillow") from error
    try:
        with Image.open(io.BytesIO(encoded_stream.tobytes()), formats=FORMATS) as image:
            found = np.array(image.convert("L" if pixel_format == "Grayscale" else "RGB"), np.uint8)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        # The specification asks for an empty image, for any fault of the file.
        return np.zeros((0, 0, CHANNELS[pixel_format]), np.uint8)
    found = found.reshape(*found.shape[:2], CHANNELS[pixel_format])
    return np.ascontiguousarray(found[:, :, ::-1]) if pixel_format == "BGR" else found
