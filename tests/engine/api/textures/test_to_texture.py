"""Tensors to pictures from every backend, held to `reference`."""

from __future__ import annotations

from typing import Any

import moderngl
import numpy as np
import pytest

from engine import BackendType, InputError, Tensor, TextureConverter, TextureTransform, Worker
from tests.engine.api.textures import reference
from tests.graphs import model, node

CASES: dict[str, tuple[int, TextureTransform]] = {
    "as it is": (3, TextureTransform()),
    "four channels": (4, TextureTransform()),
    "grey": (1, TextureTransform()),
    "red only": (1, TextureTransform().set_broadcast_channels(False)),
    "alpha only": (1, TextureTransform().set_channel_swizzle("a")),
    "light": (4, TextureTransform(color_space="linear")),
    "bottom first": (3, TextureTransform().set_coord_origin("bottom_left")),
    "kept the other way": (3, TextureTransform().set_texture_origin("bottom_left")),
    "blue first": (3, TextureTransform().set_channel_swizzle("bgr")),
    "a mask": (3, TextureTransform().set_color_mask("g", default=(0.2, 0.4, 0.6, 0.8))),
    "last channels": (4, TextureTransform().set_tensor_layout("NHWC").set_channel_swizzle("abgr")),
    "normalised": (3, TextureTransform().set_normalization((0.4, 0.5, 0.6), (0.2, 0.3, 0.25))),
    "one of many": (9, TextureTransform().set_channel_swizzle("l").set_first_channel(6)),
    "three of many": (9, TextureTransform().set_channel_swizzle("rgb").set_first_channel(5)),
    "nearest": (3, TextureTransform(resampling="nearest")),
    "area": (3, TextureTransform(resampling="area").set_coord_origin("bottom_left")),
}
SIZES = {"same": (7, 5), "larger": (16, 9), "smaller": (3, 4)}
PLACES = ("cpu", "gl_compute", "gl_pixel", "opencl", "array")


def tensor_on(name: str, values: np.ndarray, request: pytest.FixtureRequest) -> Tensor:
    """A tensor that lies on a backend."""
    from engine import ComputeTensorData, TextureTensorData

    tensor = Tensor(values)
    if name == "gl_compute":
        ComputeTensorData.pin(tensor, request.getfixturevalue("gl_device"))
    elif name == "gl_pixel":
        TextureTensorData.pin(tensor, request.getfixturevalue("gl_device"))
    elif name == "opencl":
        ComputeTensorData.pin(tensor, request.getfixturevalue("cl_device"))
    elif name == "cpu":
        how = TextureTransform(layout="NHWC", channels=1, width=values.size, height=1)
        flat = TextureConverter.to_tensor(values.reshape(1, -1), how, on=BackendType.CPU)
        return flat.reshape(values.shape)
    return tensor


def values_for(channels: int, how: TextureTransform, seed: int = 0) -> np.ndarray:
    """A batch of two with some values beyond what a picture holds."""
    shape = how.shape(2, channels, 5, 7)
    return (np.random.default_rng(seed).random(shape) * 1.4 - 0.2).astype(np.float32)


def settle() -> None:
    while TextureConverter.poll():
        pass


@pytest.mark.spread("name")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", PLACES)
def test_into_arrays(name: str, case: str, size: str, request: pytest.FixtureRequest) -> None:
    channels, how = CASES[case]
    values = values_for(channels, how)
    width, height = SIZES[size]
    target = np.full((height, width, 4), 77, np.uint8)
    assert TextureConverter.to_texture(tensor_on(name, values, request), how, target, slot=1) is target
    settle()
    wanted = reference.to_pixels(values, how, "rgba", True, height, width, slot=1)
    np.testing.assert_allclose(target, np.clip(wanted, 0, 1) * 255, atol=0.505)


@pytest.mark.spread("name")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", PLACES)
def test_into_textures(
    name: str, case: str, size: str, game: moderngl.Context, request: pytest.FixtureRequest
) -> None:
    channels, how = CASES[case]
    values = values_for(channels, how)
    width, height = SIZES[size]
    texture = game.texture((width, height), 4)
    TextureConverter.render_to_texture(tensor_on(name, values, request), texture, how, slot=1)
    settle()
    found = np.frombuffer(texture.read(), np.uint8).reshape(height, width, 4)
    wanted = reference.to_pixels(values, how, "rgba", False, height, width, slot=1)
    np.testing.assert_allclose(found, np.clip(wanted, 0, 1) * 255, atol=0.505)
    texture.release()


@pytest.mark.parametrize("name", ["gl_compute", "gl_pixel", "array"])
@pytest.mark.parametrize(("components", "dtype"), [(1, "f1"), (2, "f1"), (3, "f1"), (1, "f2"), (4, "f4")])
def test_kinds_of_textures(
    name: str, components: int, dtype: str, game: moderngl.Context, request: pytest.FixtureRequest
) -> None:
    values = values_for(3, TextureTransform())
    texture = game.texture((7, 5), components, dtype=dtype)
    TextureConverter.render_to_texture(tensor_on(name, values, request), texture)
    settle()
    kind = {"f1": np.uint8, "f2": np.float16, "f4": np.float32}[dtype]
    found = np.frombuffer(texture.read(alignment=1), kind).reshape(5, 7, components).astype(np.float64)
    order = {1: "l", 2: "rg", 3: "rgb", 4: "rgba"}[components]
    wanted = reference.to_pixels(values, TextureTransform(), order, False, 5, 7)
    if dtype == "f1":
        np.testing.assert_allclose(found, np.clip(wanted, 0, 1) * 255, atol=0.505)
    else:
        np.testing.assert_allclose(found, wanted, atol=1e-3 if dtype == "f2" else 1e-6)
    texture.release()


@pytest.mark.spread("name")
@pytest.mark.parametrize("name", ["gl_compute", "gl_pixel", "opencl", "cpu"])
@pytest.mark.parametrize("dtype", ["float16", "uint8", "int32"])
def test_types_of_tensors(
    name: str, dtype: str, game: moderngl.Context, request: pytest.FixtureRequest
) -> None:
    from engine import ComputeTensorData, TextureTensorData

    values = np.random.default_rng(0).integers(0, 256, (1, 3, 5, 7)).astype(dtype)
    tensor = Tensor(values)
    if name != "cpu":
        storage = TextureTensorData if name == "gl_pixel" else ComputeTensorData
        storage.pin(tensor, request.getfixturevalue("cl_device" if name == "opencl" else "gl_device"))
    how, texture = TextureTransform().set_scale_offset(255), game.texture((7, 5), 3)
    TextureConverter.render_to_texture(tensor, texture, how)
    settle()
    found = np.frombuffer(texture.read(alignment=1), np.uint8).reshape(5, 7, 3)
    np.testing.assert_array_equal(found[::-1].transpose(2, 0, 1), values[0].astype(int))
    texture.release()


def test_there_and_back_gives_the_same_picture(game: moderngl.Context, gl_device: Any) -> None:
    image = np.random.default_rng(0).integers(0, 256, (23, 37, 4), np.uint8)
    source, target = game.texture((37, 23), 4, image.tobytes()), game.texture((37, 23), 4)
    how = TextureTransform(channels=4, color_space="linear").set_channel_swizzle("bgra")
    how = how.set_normalization(0.4, 0.2).set_tensor_layout("NHWC")
    for kind in (BackendType.GPU_COMPUTE, BackendType.GPU_PIXEL):
        TextureConverter.to_texture(TextureConverter.to_tensor(source, how, on=kind), how, target)
        assert (gl_device.counters.readbacks, gl_device.counters.uploads) == (0, 0)
        np.testing.assert_array_equal(np.frombuffer(target.read(), np.uint8).reshape(image.shape), image)
    source.release()
    target.release()


def test_a_texture_is_made_where_none_is_given(game: moderngl.Context, gl_device: Any) -> None:
    image = np.random.default_rng(0).integers(0, 256, (5, 7, 4), np.uint8)
    source = game.texture((7, 5), 4, image.tobytes())
    tensor = TextureConverter.to_tensor(source, TextureTransform(channels=4))
    made = TextureConverter.to_texture(tensor)
    assert made.ctx is game
    assert made.size == (7, 5)
    np.testing.assert_array_equal(np.frombuffer(made.read(), np.uint8).reshape(image.shape), image)
    source.release()
    made.release()


def test_the_latest_tensor_into_a_picture_wins(cl_device: Any) -> None:
    from engine import ComputeTensorData

    target = np.zeros((2, 2, 3), np.uint8)
    for k in range(5):
        tensor = Tensor(np.full((1, 3, 2, 2), k / 4, np.float32))
        ComputeTensorData.pin(tensor, cl_device)
        TextureConverter.to_texture(tensor, None, target)
    settle()
    assert (target == 255).all()


@pytest.mark.parametrize(
    ("shape", "transform", "message"),
    [
        ((1, 9, 4, 4), TextureTransform(), "say which of them are meant"),
        ((1, 3, 4, 4), TextureTransform().set_first_channel(3), "channels 3 to"),
        ((1, 2, 3, 4, 4), TextureTransform(), "has 4 dimensions"),
    ],
)
def test_what_does_not_fit_is_refused(
    shape: tuple[int, ...], transform: TextureTransform, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        TextureConverter.to_texture(
            Tensor(np.zeros(shape, np.float32)), transform, np.zeros((4, 4), np.uint8)
        )
    with pytest.raises(InputError, match="no image 2 in a batch of 1"):
        TextureConverter.to_texture(Tensor(np.zeros((1, 4, 4), np.float32)), None, np.zeros((4, 4)), slot=2)


def test_what_cannot_be_written_is_refused() -> None:
    frozen = np.zeros((4, 4), np.uint8)
    frozen.flags.writeable = False
    with pytest.raises(InputError, match="cannot be written"):
        TextureConverter.to_texture(Tensor(np.zeros((1, 4, 4), np.float32)), None, frozen)


def test_poll_tells_of_one_picture_what_is_on_its_way_into_it() -> None:
    values = np.random.default_rng(0).random((1, 3, 5, 7)).astype(np.float32)
    shape = {"x": ("float32", values.shape)}
    network = model([node("Abs", ["x"], ["y"])], shape, {"y": ("float32", values.shape)})
    late, other = np.zeros((5, 7, 3), np.float32), np.zeros((5, 7, 3), np.float32)
    with Worker(network, BackendType.CPU) as worker:
        schedule = worker.schedule_iterable(values)
        TextureConverter.to_texture(schedule.output(), texture=late)
        TextureConverter.to_texture(Tensor(values), texture=other)
        while TextureConverter.poll(other):
            pass
        np.testing.assert_allclose(other, values[0].transpose(1, 2, 0), atol=1e-6)
        assert (TextureConverter.poll(late), TextureConverter.poll()) == (1, 1)
        assert not late.any()
        for _ in schedule:
            pass
        while TextureConverter.poll(late):
            pass
        np.testing.assert_array_equal(late, other)
