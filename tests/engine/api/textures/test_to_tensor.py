"""Pictures to tensors on every backend, held to `reference`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import moderngl
import numpy as np
import pytest

from engine import (
    BackendType,
    InputError,
    ModelLoader,
    Tensor,
    TextureConverter,
    TextureTransform,
    Worker,
)
from tests.engine.api.textures import reference

CASES: dict[str, TextureTransform] = {
    "as it is": TextureTransform(),
    "four channels": TextureTransform(channels=4),
    "grey": TextureTransform(channels=1),
    "grey of light": TextureTransform(channels=1, color_space="linear", resampling="area", width=3, height=2),
    "light": TextureTransform(channels=4, color_space="linear"),
    "bottom first": TextureTransform(coord_origin="bottom_left"),
    "kept the other way": TextureTransform().set_texture_origin("bottom_left"),
    "blue first": TextureTransform().set_channel_swizzle("bgr"),
    "any order": TextureTransform().set_channel_swizzle("a1gl"),
    "a mask": TextureTransform(channels=4).set_color_mask("gb", default=(0.25, 0.5, 0.75, 0.125)),
    "last channels": TextureTransform(channels=4).set_tensor_layout("NHWC").set_channel_swizzle("BGRA"),
    "normalised": TextureTransform().set_normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "minus one to one": TextureTransform().set_scale_offset(2, -1),
    **{
        f"{kind} to {w}x{h}": TextureTransform(width=w, height=h, resampling=kind, coord_origin=origin)
        for kind in ("nearest", "bilinear", "area")
        for w, h, origin in (
            (4, 3, "top_left"),
            (17, 9, "bottom_left"),
            (1, 1, "top_left"),
            (7, 11, "top_left"),
        )
    },
}
DIGITS = Path(__file__).parents[4] / "assets" / "digits" / "digits.onnx"
PLACES = ("cpu", "gl_compute", "gl_pixel", "opencl")

Place = Callable[[str], Any]


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    """What `on=` takes for a backend."""

    def of(name: str) -> Any:
        if name == "cpu":
            return BackendType.CPU
        if name == "opencl":
            return request.getfixturevalue("cl_device")
        request.getfixturevalue("gl_device")
        return BackendType.GPU_COMPUTE if name == "gl_compute" else BackendType.GPU_PIXEL

    return of


def pixels(height: int, width: int, channels: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)


def expected(
    stored: np.ndarray, how: TextureTransform, order: str = "rgba", top_down: bool = True
) -> np.ndarray:
    values = stored / 255 if stored.dtype == np.uint8 else stored
    count = how.channels or len(how.swizzle) or min(len(order), 3)
    size = (how.height or stored.shape[0], how.width or stored.shape[1])
    return reference.to_tensor(values, order, top_down, how, *size, count)


@pytest.mark.spread("name")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", PLACES)
def test_arrays(name: str, case: str, place: Place) -> None:
    image, how = pixels(5, 7, 4), CASES[case]
    tensor = TextureConverter.to_tensor(image, how, on=place(name))
    assert tensor.dtype == np.float32
    np.testing.assert_allclose(tensor.download_to_array(), expected(image, how), atol=3e-5)


@pytest.mark.spread("name")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["gl_compute", "gl_pixel"])
def test_textures_stay_on_the_gpu(
    name: str, case: str, place: Place, game: moderngl.Context, gl_device: Any
) -> None:
    image, how = pixels(5, 7, 4), CASES[case]
    texture = game.texture((7, 5), 4, image.tobytes())
    tensor = TextureConverter.to_tensor(texture, how, on=place(name))
    assert (gl_device.counters.readbacks, gl_device.counters.uploads) == (0, 0)
    found = tensor.download_to_array()
    np.testing.assert_allclose(found, expected(image, how, top_down=False), atol=3e-5)
    texture.release()


@pytest.mark.parametrize("name", ["cpu", "opencl"])
def test_textures_come_by_a_readback_that_nobody_waits_for(
    name: str, place: Place, game: moderngl.Context, gl_device: Any
) -> None:
    image, how = pixels(6, 9, 3), TextureTransform(width=4, height=4, resampling="area")
    texture = game.texture((9, 6), 3, image.tobytes(), alignment=1)
    before = TextureConverter.counters.staged_down
    tensor = TextureConverter.to_tensor(texture, how, on=place(name))
    assert not gl_device.counters.blocking
    np.testing.assert_allclose(
        tensor.download_to_array(), expected(image, how, "rgb", top_down=False), atol=3e-5
    )
    assert TextureConverter.counters.staged_down - before == 1
    texture.release()


@pytest.mark.parametrize("name", ["gl_compute", "gl_pixel"])
@pytest.mark.parametrize(
    ("components", "dtype"), [(1, "f1"), (2, "f1"), (3, "f1"), (1, "f2"), (4, "f4"), (3, "f4")]
)
def test_kinds_of_textures(
    name: str, components: int, dtype: str, place: Place, game: moderngl.Context
) -> None:
    kind = {"f1": np.uint8, "f2": np.float16, "f4": np.float32}[dtype]
    stored = pixels(3, 5, components) if dtype == "f1" else (pixels(3, 5, components) / 64 - 1).astype(kind)
    texture = game.texture((5, 3), components, stored.tobytes(), dtype=dtype, alignment=1)
    # Without mipmaps it could not be sampled like this; conversions read it all the same.
    texture.filter = (moderngl.LINEAR_MIPMAP_LINEAR, moderngl.LINEAR)
    order = {1: "l", 2: "rg", 3: "rgb", 4: "rgba"}[components]
    how = TextureTransform(channels=4)
    found = TextureConverter.to_tensor(texture, how, on=place(name)).download_to_array()
    np.testing.assert_allclose(found, expected(stored, how, order, top_down=False), atol=1e-6)
    texture.release()


@pytest.mark.spread("name")
@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64", "uint16", "bool", "grey"])
def test_kinds_of_arrays(name: str, dtype: str, place: Place) -> None:
    image = pixels(3, 5, 3)
    stored = image / 255
    given: np.ndarray = stored.astype(dtype) if dtype.startswith("float") else image
    order = "rgb"
    if dtype == "bool":
        given = image > 100
        stored = given.astype(np.float64)
    elif dtype == "uint16":
        given = image.astype(np.uint16) * 257
    elif dtype == "grey":
        given, stored, order = image[..., 0], stored[..., :1], "l"
    found = TextureConverter.to_tensor(given, on=place(name)).download_to_array()
    assert found.shape == (1, len(order), 3, 5)
    np.testing.assert_allclose(found, expected(stored, TextureTransform(), order), atol=1e-6)


def test_arrays_that_lie_otherwise_in_memory() -> None:
    image = pixels(6, 8, 4)[::-1, 1::2, 2::-1]
    found = TextureConverter.to_tensor(image).download_to_array()
    np.testing.assert_allclose(
        found, expected(np.ascontiguousarray(image), TextureTransform(), "rgb"), atol=1e-6
    )


@pytest.mark.spread("name")
@pytest.mark.parametrize("dtype", ["float16", "uint8", "int8", "int32"])
@pytest.mark.parametrize("name", PLACES)
def test_types_of_tensors(name: str, dtype: str, place: Place) -> None:
    image, how = pixels(4, 4, 3), TextureTransform(scale=(255,), offset=(-20,)).set_dtype(dtype)
    tensor = TextureConverter.to_tensor(image, how, on=place(name))
    values = image.transpose(2, 0, 1)[None].astype(np.float64) - 20
    if np.dtype(dtype).kind in "iu":
        values = np.clip(values, np.iinfo(dtype).min, np.iinfo(dtype).max)
    assert tensor.dtype == np.dtype(dtype)
    np.testing.assert_allclose(tensor.download_to_array().astype(np.float64), values, atol=0.13)


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("size", [(4, 4), (5, 3)])
def test_a_batch_of_arrays(name: str, size: tuple[int, int], place: Place) -> None:
    images = [pixels(size[1], size[0], 3, seed) for seed in range(3)]
    tensor = TextureConverter.to_tensor(images, on=place(name))
    single = np.concatenate([expected(image, TextureTransform(), "rgb") for image in images])
    np.testing.assert_allclose(tensor.download_to_array(), single, atol=1e-6)


@pytest.mark.parametrize("name", PLACES)
def test_a_batch_of_arrays_of_different_sizes(name: str, place: Place) -> None:
    images = [pixels(3 + k, 5 + k, 3, k) for k in range(3)]
    how = TextureTransform(width=5, height=3, resampling="nearest")
    tensor = TextureConverter.to_tensor(images, how, on=place(name))
    single = np.concatenate([expected(image, how, "rgb") for image in images])
    np.testing.assert_allclose(tensor.download_to_array(), single, atol=1e-6)


@pytest.mark.spread("name")
@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("size", [(4, 4), (5, 3), (1, 1), (37, 23)])
def test_a_batch_of_textures_and_a_slot_of_it(
    name: str, size: tuple[int, int], place: Place, game: moderngl.Context
) -> None:
    """Sizes whose pictures do not begin at a whole texel of four elements are drawn with a mask."""
    images = [pixels(size[1], size[0], 3, seed) for seed in range(4)]
    textures = [game.texture(size, 3, image.tobytes(), alignment=1) for image in images]
    tensor = TextureConverter.to_tensor(textures[:3], on=place(name))
    single = [expected(image, TextureTransform(), "rgb", top_down=False) for image in images]
    np.testing.assert_allclose(tensor.download_to_array(), np.concatenate(single[:3]), atol=1e-6)
    if name.startswith("gl"):
        TextureConverter.to_tensor(textures[3], tensor=tensor, slot=1)
        single[1] = single[3]
        np.testing.assert_allclose(tensor.download_to_array(), np.concatenate(single[:3]), atol=1e-6)
    for texture in textures:
        texture.release()


@pytest.mark.parametrize("name", PLACES)
def test_a_tensor_is_filled_again_and_again(name: str, place: Place) -> None:
    tensor = TextureConverter.to_tensor(np.zeros((3, 5, 3), np.uint8), on=place(name))
    storage = tensor.data_on_backend
    for seed in range(3):
        image = pixels(3, 5, 3, seed)
        assert TextureConverter.to_tensor(image, tensor=tensor) is tensor
        assert tensor.data_on_backend is storage
        np.testing.assert_allclose(
            tensor.download_to_array(), expected(image, TextureTransform(), "rgb"), atol=1e-6
        )


@pytest.mark.parametrize("name", PLACES)
def test_a_tensor_moves_to_where_the_work_is_and_keeps_its_other_slots(name: str, place: Place) -> None:
    kept = np.random.default_rng(1).random((3, 3, 4, 5), np.float32)
    tensor = Tensor(kept)
    image = pixels(9, 7, 3)
    TextureConverter.to_tensor(image, tensor=tensor, slot=1, on=place(name))
    how = TextureTransform(width=5, height=4)
    kept[1:2] = expected(image, how, "rgb")
    np.testing.assert_allclose(tensor.download_to_array(), kept, atol=1e-6)


@pytest.mark.parametrize("source", ["array", "texture"])
@pytest.mark.parametrize("name", PLACES)
def test_a_worker_says_what_size_it_wants_and_reads_the_tensor(
    name: str, source: str, game: moderngl.Context, request: pytest.FixtureRequest
) -> None:
    model = ModelLoader.load(DIGITS)
    kind = {"cpu": BackendType.CPU, "gl_pixel": BackendType.GPU_PIXEL}.get(name, BackendType.GPU_COMPUTE)
    device = request.getfixturevalue("cl_device" if name == "opencl" else "gl_device")
    images = [pixels(40, 50, 3, seed) for seed in range(3)]
    how = TextureTransform(resampling="area")
    with Worker(model) as judge, Worker(model, kind, device=None if name == "cpu" else device) as worker:
        tensor = None
        for image in images:
            texture = game.texture((50, 40), 3, image[::-1].tobytes(), alignment=1)
            picture = image if source == "array" else texture
            tensor = TextureConverter.to_tensor(picture, how, tensor, on=worker)
            assert tensor.shape == (1, 1, 28, 28)
            worker.schedule(tensor)
            found = worker.peek_output().download_to_array()
            grey = TextureTransform(28, 28, 1, resampling="area")
            judge.schedule(expected(image, grey, "rgb").astype(np.float32))
            np.testing.assert_allclose(found, judge.peek_output().download_to_array(), atol=1e-4)
            texture.release()


def test_a_large_picture_in_many_rows_of_texels(place: Place, game: moderngl.Context) -> None:
    image = pixels(200, 300, 4)
    texture = game.texture((300, 200), 4, image.tobytes())
    for name in ("gl_compute", "gl_pixel"):
        for count in (1, 2):
            found = TextureConverter.to_tensor([texture] * count, on=place(name)).download_to_array()
            single = expected(image, TextureTransform(), top_down=False)
            np.testing.assert_allclose(found, np.concatenate([single] * count), atol=1e-6)
    texture.release()


@pytest.mark.parametrize(
    ("picture", "options", "message"),
    [
        (np.zeros((4, 4, 5)), {}, "is no image"),
        (np.zeros((0, 4, 3)), {}, "is no image"),
        (np.zeros((4, 4), complex), {}, "an image of complex128"),
        (object(), {}, "a object is no image"),
        ([], {}, "empty batch"),
        (np.zeros((4, 4, 2)), {"transform": TextureTransform(channels=1)}, "luminance is made of"),
        (np.zeros((4, 4)), {"slot": 0}, "slot= puts one image"),
        (np.zeros((4, 4)), {"tensor": Tensor(np.zeros((1, 4, 4), np.float32))}, "needs four dimensions"),
        (
            np.zeros((4, 4)),
            {"tensor": Tensor(np.zeros((2, 1, 4, 4), np.float32)), "slot": 2},
            "no slot 2 in a batch of 2",
        ),
        (np.zeros((4, 4)), {"tensor": Tensor(np.zeros((2, 1, 4, 4), np.float32))}, "1 images for a tensor"),
        (
            np.zeros((4, 4)),
            {"tensor": Tensor(np.zeros((1, 1, 4, 4), np.float32)), "transform": TextureTransform(width=5)},
            "asks for width 5, the tensor has 4",
        ),
    ],
)
def test_what_does_not_fit_is_refused(picture: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TextureConverter.to_tensor(picture, **options)
