"""Kinds of images: pygame surfaces, Pillow images, framebuffers, gameglue's textures; what is none."""

from __future__ import annotations

from typing import Any

import moderngl
import numpy as np
import pygame
import pytest

from engine import InputError, Tensor, TextureConverter, TextureTransform
from engine.api.textures.images import image_of
from gameglue.graphics.device import GraphicsDevice

RGBA = np.random.default_rng(3).integers(0, 256, (5, 7, 4), np.uint8)


def planes(array: np.ndarray) -> np.ndarray:
    """What (rows, columns, channels) of bytes is as a tensor."""
    return array.transpose(2, 0, 1)[None] / 255


@pytest.mark.parametrize("depth", [24, 32])
@pytest.mark.parametrize("alpha", [False, True])
def test_surfaces(depth: int, alpha: bool) -> None:
    if alpha:
        surface = pygame.Surface((7, 5), pygame.SRCALPHA, 32)
    else:
        surface = pygame.Surface((7, 5), depth=depth)
    for y in range(5):
        for x in range(7):
            surface.set_at((x, y), tuple(int(v) for v in RGBA[y, x]))
    how = TextureTransform(channels=4)
    found = TextureConverter.to_tensor(surface, how).download_to_array()
    wanted = RGBA.copy()
    if not alpha:
        wanted[..., 3] = 255
    np.testing.assert_allclose(found, planes(wanted), atol=1e-6)
    assert not surface.get_locked()
    target = pygame.Surface((7, 5), pygame.SRCALPHA if alpha else 0, 32 if alpha else depth)
    TextureConverter.to_texture(Tensor(found), how, target)
    while TextureConverter.poll():
        pass
    assert [target.get_at((x, 4)) for x in range(7)] == [surface.get_at((x, 4)) for x in range(7)]


def test_a_part_of_a_surface() -> None:
    surface = pygame.image.frombytes(RGBA.tobytes(), (7, 5), "RGBA").subsurface((2, 1, 4, 3))
    found = TextureConverter.to_tensor(surface).download_to_array()
    np.testing.assert_allclose(found, planes(RGBA[1:4, 2:6, :3]), atol=1e-6)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P", "LA"])
def test_pillow_images(mode: str) -> None:
    image_module = pytest.importorskip("PIL.Image")
    image = image_module.fromarray(RGBA).convert(mode)
    found = TextureConverter.to_tensor(image).download_to_array()
    wanted = np.asarray(image if mode == "L" else image.convert("RGB"))
    np.testing.assert_allclose(found, planes(wanted.reshape(5, 7, -1)), atol=1e-6)


@pytest.mark.gl
def test_gameglue_knows_which_row_of_its_pictures_is_on_top(game: moderngl.Context, gl_device: Any) -> None:
    device = GraphicsDevice(game)
    texture, target = device.texture(RGBA), device.render_target((7, 5))
    how = TextureTransform(channels=4)
    tensor = TextureConverter.to_tensor(texture, how)
    np.testing.assert_allclose(tensor.download_to_array(), planes(RGBA), atol=1e-6)
    TextureConverter.render_to_texture(tensor, target, how)
    np.testing.assert_array_equal(target.read(), RGBA[..., :3])
    assert target.framebuffer is not None
    for picture in (target, target.framebuffer):
        again = TextureConverter.to_tensor(picture, how)
        np.testing.assert_allclose(again.download_to_array(), planes(RGBA), atol=1e-6)
    grey = device.texture(RGBA[..., 0])
    found = TextureConverter.to_tensor(grey).download_to_array()
    np.testing.assert_allclose(found, planes(RGBA[..., :1]), atol=1e-6)
    device.release()


@pytest.mark.gl
def test_a_name_that_is_used_again_means_the_new_texture(game: moderngl.Context, gl_device: Any) -> None:
    """Recorded commands hold names; OpenGL gives the name of a deleted texture to another."""
    for seed in range(4):
        data = np.random.default_rng(seed).integers(0, 256, (5, 7, 4), np.uint8)
        source, target = game.texture((7, 5), 4, data.tobytes()), game.texture((7, 5), 4)
        tensor = TextureConverter.to_tensor(source, TextureTransform(channels=4))
        TextureConverter.render_to_texture(tensor, target)
        np.testing.assert_array_equal(np.frombuffer(target.read(), np.uint8).reshape(data.shape), data)
        tensor.dispose()
        source.release()
        target.release()


@pytest.mark.gl
def test_what_cannot_be_converted_is_refused_by_name(game: moderngl.Context, gl_device: Any) -> None:
    depth = game.depth_texture((4, 4))
    samples = game.texture((4, 4), 4, samples=2)
    integers = game.texture((4, 4), 4, dtype="u1")
    released = game.texture((4, 4), 4)
    released.release()
    empty = GraphicsDevice(None).render_target((4, 4))
    for picture, message in (
        (depth, "no depth"),
        (samples, "multisampled"),
        (integers, "of dtype 'u1'"),
        (released, "was released"),
        (empty, "no OpenGL behind it"),
        (pygame.Surface((4, 4), depth=8), "a surface of 8 bits"),
        (np.zeros((4, 20000)), "20000 x 4 pixels"),
    ):
        with pytest.raises(InputError, match=message):
            image_of(picture)
    for texture in (depth, samples, integers):
        texture.release()


def test_transforms_are_values() -> None:
    how = TextureTransform()
    changed = how.set_dimensions(4, 5, 3).set_tensor_layout("nhwc").set_coord_origin("BOTTOM_LEFT")
    assert how == TextureTransform()
    assert hash(changed) == hash(changed.set_default_color())
    assert changed == TextureTransform(
        width=4, height=5, channels=3, layout="NHWC", coord_origin="bottom_left"
    )
    assert TextureTransform(scale=2).scale == (2.0,)  # type: ignore[arg-type]
    assert TextureTransform().set_normalization(0.5, (0.5, 0.25, 1.0)).offset == (-1.0, -2.0, -0.5)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"width": 0}, "width is 0"),
        ({"channels": 5}, "channels is 5"),
        ({"swizzle": "rgx"}, "up to four of the letters"),
        ({"swizzle": "rg", "channels": 3}, "is for 2 channels, not 3"),
        ({"color_mask": "x"}, "letters of 'rgba'"),
        ({"resampling": "cubic"}, "one of nearest, bilinear, area"),
        ({"color_space": "p3"}, "one of srgb, linear"),
        ({"dtype": "complex64"}, "dtype is 'complex64'"),
        ({"scale": 0.0}, "a scale of 0"),
        ({"offset": (1, 2, 3, 4, 5)}, "one number, or one for each channel"),
        ({"first_channel": -1}, "first_channel is -1"),
        ({"default_color": (1, 2)}, "four numbers"),
    ],
)
def test_wrong_transforms_are_refused_when_they_are_made(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TextureTransform(**fields)
