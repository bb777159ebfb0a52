"""The conversions written down a second time, in float64 NumPy and without the engine: what tests compare
with.

Everything goes through a canonical picture: (rows, columns, 4) red, green, blue, alpha from 0 to 1, top row
first.
"""

from __future__ import annotations

import numpy as np

from engine.api.textures import CoordOrigin, TextureTransform

WEIGHTS = {"srgb": (0.299, 0.587, 0.114), "linear": (0.2126, 0.7152, 0.0722)}


def decode(x: np.ndarray) -> np.ndarray:
    return np.where(x <= 0.04045, x / 12.92, (np.maximum(x + 0.055, 0) / 1.055) ** 2.4)


def encode(x: np.ndarray) -> np.ndarray:
    return np.where(x <= 0.0031308, x * 12.92, 1.055 * np.maximum(x, 0.0031308) ** (1 / 2.4) - 0.055)


def axis_weights(given: int, made: int, kind: str) -> np.ndarray:
    """(made, given): how much of each pixel is in an output pixel."""
    weights = np.zeros((made, given))
    for k in range(made):
        middle = (k + 0.5) * given / made
        if kind == "nearest":
            weights[k, min(int((2 * k + 1) * given // (2 * made)), given - 1)] = 1
        elif kind == "bilinear":
            low = int(np.floor(middle - 0.5))
            along = middle - 0.5 - low
            weights[k, min(max(low, 0), given - 1)] += 1 - along
            weights[k, min(max(low + 1, 0), given - 1)] += along
        else:
            for j in range(given):
                overlap = min((k + 1) * given / made, j + 1) - max(k * given / made, j)
                weights[k, j] = max(overlap, 0) * made / given
    return weights


def resample(x: np.ndarray, height: int, width: int, kind: str) -> np.ndarray:
    rows, columns = axis_weights(x.shape[0], height, kind), axis_weights(x.shape[1], width, kind)
    return np.einsum("yr,xc,rck->yxk", rows, columns, x, optimize=True)


def canonical(pixels: np.ndarray, order: str, default: tuple[float, ...]) -> np.ndarray:
    """Stored channels (rows, columns, n) as red, green, blue, alpha; what is missing is the default."""
    out = np.empty((*pixels.shape[:2], 4))
    for k, name in enumerate("rgba"):
        if name in order:
            out[..., k] = pixels[..., order.index(name)]
        elif order == "l" and name != "a":
            out[..., k] = pixels[..., 0]
        else:
            out[..., k] = default[k]
    return out


def to_tensor(
    pixels: np.ndarray,
    order: str,
    top_down: bool,
    how: TextureTransform,
    height: int,
    width: int,
    channels: int,
) -> np.ndarray:
    """pixels: (rows, columns, n) from 0 to 1 as they are stored. Gives (1, C, H, W) or NHWC."""
    picture = canonical(pixels.astype(np.float64), order, how.default_color)
    for k, name in enumerate("rgba"):
        if name not in how.color_mask:
            picture[..., k] = how.default_color[k]
    linear = how.color_space == "linear"
    if linear:
        picture[..., :3] = decode(picture[..., :3])
    if how.texture_origin is not None:
        top_down = how.texture_origin == CoordOrigin.TOP_LEFT
    if top_down != (how.coord_origin == CoordOrigin.TOP_LEFT):
        picture = picture[::-1]
    picture = resample(picture, height, width, how.resampling)
    letters = how.swizzle or ("l" if channels == 1 else "rgba"[:channels])
    planes = []
    for k, letter in enumerate(letters):
        if letter in "01":
            plane = np.full(picture.shape[:2], float(letter))
            plane = decode(plane) if linear else plane
        elif letter == "l":
            grey = order == "l"
            plane = picture[..., 0] if grey else picture[..., :3] @ np.array(WEIGHTS[how.color_space])
        else:
            plane = picture[..., "rgba".index(letter)]
        scale = how.scale[k] if len(how.scale) > 1 else how.scale[0]
        offset = how.offset[k] if len(how.offset) > 1 else how.offset[0]
        planes.append(plane * scale + offset)
    tensor = np.stack(planes)[None]
    return tensor.transpose(0, 2, 3, 1) if how.layout == "NHWC" else tensor


def to_pixels(
    tensor: np.ndarray,
    how: TextureTransform,
    order: str,
    top_down: bool,
    height: int,
    width: int,
    slot: int = 0,
) -> np.ndarray:
    """Picture `slot` of a tensor as stored channels (rows, columns, len(order)), from 0 to 1, not rounded."""
    one = tensor[slot].astype(np.float64)
    one = one if how.layout == "NHWC" else one.transpose(1, 2, 0)
    one = one[..., how.first_channel :]
    letters = how.swizzle or ("l" if one.shape[2] == 1 else "rgba"[: one.shape[2]])
    values = resample(one, height, width, how.resampling)
    if how.texture_origin is not None:
        top_down = how.texture_origin == CoordOrigin.TOP_LEFT
    if top_down != (how.coord_origin == CoordOrigin.TOP_LEFT):
        values = values[::-1]
    out = np.empty((height, width, len(order)))
    for k, name in enumerate(order):
        role = "r" if name == "l" else name
        default = 0.0 if name == "0" else how.default_color["rgba".index(role)]
        source = letters.find(name)
        if source < 0 and name == "l":
            source = letters.find("r")
        if source < 0 and role in "rgb" and (how.broadcast_channels or role == "r"):
            source = letters.find("l") if "l" in letters else 0 if letters == "r" else -1
        if source < 0 or role not in how.color_mask:
            out[..., k] = default
            continue
        scale = how.scale[source] if len(how.scale) > 1 else how.scale[0]
        offset = how.offset[source] if len(how.offset) > 1 else how.offset[0]
        plane = (values[..., source] - offset) / scale
        out[..., k] = encode(plane) if how.color_space == "linear" and name != "a" else plane
    return out
