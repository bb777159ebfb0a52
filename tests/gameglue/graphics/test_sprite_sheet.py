"""Sheets cut by grids and clips played frame by frame, against counting."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gameglue import (
    AmbientLight,
    AnimationClip,
    App,
    Camera2D,
    Camera3D,
    GraphicsError,
    Mesh,
    MeshRenderer,
    SpriteAnimator,
    SpriteRenderer,
    SpriteSheet,
    TileMap,
)

MakeApp = Callable[..., App]


def numbered(app: App, columns: int, rows: int, cell: int = 4, *, smooth: bool = False) -> SpriteSheet:
    """A sheet whose frame number n is grey of 10 * (n + 1)."""
    numbers = np.arange(1, columns * rows + 1).reshape(rows, columns) * 10
    pixels = np.kron(numbers, np.ones((cell, cell))).astype(np.uint8)
    return SpriteSheet(app.graphics.texture(pixels, smooth=smooth), columns, rows)


def test_regions_follow_the_grid(app: App) -> None:
    texture = app.graphics.texture(size=(100, 50), smooth=False)
    sheet = SpriteSheet(texture, columns=3, rows=2, margin=2, spacing=3)
    # 100 - 2 * 2 - 2 * 3 = 90 pixels for three frames, 50 - 4 - 3 = 43 for two.
    assert sheet.frame_size == (30.0, 21.5)
    assert len(sheet) == 6
    left, top, right, bottom = sheet.region(4)
    assert (left * 100, right * 100) == pytest.approx((35, 65))
    assert (top * 50, bottom * 50) == pytest.approx((26.5, 48))
    assert sheet.region(-2) == sheet.region(4) == sheet.region(10)
    fixed = SpriteSheet.of_frames(texture, 32, 16, spacing=1)
    assert (fixed.columns, fixed.rows, fixed.frame_size) == (3, 3, (32, 16))
    assert [value * size for value, size in zip(fixed.region(4), (100, 50, 100, 50), strict=True)] == (
        pytest.approx([33, 17, 65, 33])
    )


@pytest.mark.parametrize(("columns", "rows", "margin"), [(0, 1, 0), (101, 1, 0), (1, 1, 30), (1, 1, -1)])
def test_grids_without_room_are_refused(app: App, columns: int, rows: int, margin: int) -> None:
    with pytest.raises(GraphicsError):
        SpriteSheet(app.graphics.texture(size=(100, 50)), columns, rows, margin=margin)
    with pytest.raises(GraphicsError, match="no frame of 101 by 5 fits"):
        SpriteSheet.of_frames(app.graphics.texture(size=(100, 50)), 101, 5)


@pytest.mark.gl
@pytest.mark.parametrize("smooth", [False, True])
def test_a_renderer_shows_its_frame_and_nothing_of_the_neighbours(
    make_drawing_app: MakeApp, smooth: bool
) -> None:
    app = make_drawing_app()
    app.scene.create("camera").add_component(Camera2D, height=24.0, background="black")
    sheet = numbered(app, 4, 2, smooth=smooth)
    sprite = app.scene.create("sprite").add_component(SpriteRenderer, sheet=sheet, width=8.0)
    for frame in (0, 5, 7):
        sprite.frame = frame
        app.step()
        pixels = app.graphics.read_pixels()[80:160, 120:200]
        assert np.unique(pixels).tolist() == [10 * (frame + 1)]


@pytest.mark.gl
def test_sprites_are_mirrored(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    app.scene.create("camera").add_component(Camera2D, height=24.0, background="black")
    texture = app.graphics.texture(np.array([[10, 20], [30, 40]], np.uint8), smooth=False)
    sprite = app.scene.create("sprite").add_component(SpriteRenderer, texture=texture, width=8.0)

    def corners() -> list[int]:
        app.step()
        pixels = app.graphics.read_pixels()[..., 0]
        return [int(pixels[y, x]) for y in (90, 150) for x in (130, 190)]

    assert corners() == [10, 20, 30, 40]
    sprite.flip_x = True
    assert corners() == [20, 10, 40, 30]
    sprite.flip_y = True
    assert corners() == [40, 30, 20, 10]


def test_a_clip_counts_its_frames() -> None:
    clip = AnimationClip([3, 1, 4], frame_rate=10)
    assert [clip.frame_at(t / 10) for t in range(7)] == [3, 1, 4, 3, 1, 4, 3]
    assert clip.frame_at(sum([0.1] * 3)) == 3, "a sum of steps that is a hair short"
    once = AnimationClip(range(2), 5, loop=False)
    assert [once.frame_at(t) for t in (0.0, 0.19, 0.2, 9.0)] == [0, 0, 1, 1]
    assert once.duration == pytest.approx(0.4)
    with pytest.raises(GraphicsError, match="frames and a rate above 0"):
        AnimationClip([])


def test_an_animator_plays_clips_in_game_time(app: App) -> None:
    clips = {"walk": AnimationClip([0, 1, 2], 10), "jump": AnimationClip([5, 6], 10, loop=False)}
    animator = app.scene.create("hero").add_component(SpriteAnimator, clips=clips)
    sprite = animator.get_component(SpriteRenderer)
    assert sprite is not None, "the renderer that it needs is added"
    ended: list[str] = []
    animator.on_finished.connect(ended.append)

    def frames(count: int) -> list[int]:
        shown = []
        for _ in range(count):
            app.step(0.1)
            assert sprite is not None
            shown.append(sprite.frame)
        return shown

    assert frames(4) == [1, 2, 0, 1], "the first clip begins by itself"
    animator.play("walk")
    assert frames(1) == [2], "a clip that plays already goes on"
    animator.play("jump")
    assert frames(4) == [6, 6, 6, 6]
    assert ended == ["jump"]
    assert animator.is_finished
    animator.play("walk", restart=True)
    animator.speed = 2.0
    assert frames(2) == [2, 1]
    animator.stop()
    assert frames(2) == [1, 1]
    with pytest.raises(GraphicsError, match="no clip 'jmp'; did you mean 'jump'"):
        animator.play("jmp")


@pytest.mark.gl
def test_a_tile_map_shows_each_tile_at_its_place(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    view = app.scene.create("camera").add_component(Camera2D, height=24.0, background="black")
    tiles = np.arange(400 * 500).reshape(400, 500) % 8
    tiles[200, 250] = -1
    level = app.scene.create("level", scale=0.5).add_component(
        TileMap, sheet=numbered(app, 4, 2), tiles=tiles, tile_size=4.0
    )
    app.step()
    pixels = app.graphics.read_pixels()[..., 0]
    # A tile is two units, 20 pixels, wide; four of them meet in the middle of the picture.
    rows, columns = 200 + (np.arange(240) - 120) // 20, 250 + (np.arange(320) - 160) // 20
    expected = (tiles[np.ix_(rows, columns)] + 1) * 10
    assert np.array_equal(pixels, expected)
    assert level.tile_at((0.1, -0.1)) == (200, 250)
    assert level.tile_at((0.1, 0.1)) == (199, 250)
    assert level.tile_at((1000, 0)) is None
    assert level.center_of(200, 250) == pytest.approx((1, -1, 0))
    view.transform.angle = level.transform.angle = 90
    view.transform.position = level.center_of(3, 4)
    app.step()
    assert np.all(app.graphics.read_pixels()[112:128, 152:168, 0] == (tiles[3, 4] + 1) * 10)
    level.tiles = [[0.5]]  # type: ignore[list-item]
    with pytest.raises(GraphicsError, match="whole numbers"):
        level.tile_at((0, 0))


@pytest.mark.gl
def test_textures_repeat_and_have_smaller_copies(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app()
    stripes = np.zeros((64, 64), np.uint8)
    stripes[:, ::2] = 255
    app.scene.create("light").add_component(AmbientLight, intensity=1.0)
    app.scene.create("eye", position=(0, 0, 5)).add_component(
        Camera3D, projection="orthographic", height=24.0, background="black", multisampling=False
    )
    mesh = Mesh.quad(8.0, 8.0)
    mesh.uvs[:] *= 4.0  # 256 stripes on 80 pixels
    wall = app.scene.create("wall").add_component(MeshRenderer, mesh=mesh)
    wall.texture = app.graphics.texture(stripes, repeat=True, mipmaps=True)
    app.step()
    calm = app.graphics.read_pixels()[85:155, 125:195, 0]
    assert np.abs(calm.astype(int) - 128).max() <= 3, "the mean of black and white"
    wall.texture = app.graphics.texture(np.array([[10, 200]], np.uint8), smooth=False, repeat=True)
    app.step()
    row = app.graphics.read_pixels()[120, 120:200, 0]
    assert row.tolist() == ([10] * 10 + [200] * 10) * 4
