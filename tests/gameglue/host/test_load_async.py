"""Resources beside the frames: each kind by name, awaited, yielded and polled, in slices of the budget."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pygame
import pytest

from gameglue import App, AudioClip, Loading, Model, MonoBehaviour, ResourceError, Texture
from gameglue.graphics.mesh import Mesh
from tests.graphs import mlp

MakeApp = Callable[..., App]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    random = np.random.default_rng(3)
    pixels = random.integers(0, 256, (700, 513, 3), np.uint8)
    surface = pygame.image.frombytes(pixels.tobytes(), (513, 700), "RGB")
    pygame.image.save(surface, str(tmp_path / "picture.png"))
    np.save(tmp_path / "expected.npy", pixels)
    (tmp_path / "net.onnx").write_bytes(mlp((6, 8, 3)))
    (tmp_path / "words.txt").write_text("wörds", encoding="utf-8")
    (tmp_path / "box.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n")
    (tmp_path / "thing.xyz").write_text("what")
    return tmp_path


def play_until_done(app: App, loading: Loading[Any]) -> int:
    frames, end = 0, time.monotonic() + 60
    while not loading.is_over:
        assert time.monotonic() < end
        app.step()
        time.sleep(0.001)
        frames += 1
    return frames


class Awaiter(MonoBehaviour):
    """Loads one thing after another."""

    async def start(self) -> None:
        self.model = await self.resources.load_async("net.onnx")
        self.text = await self.resources.load_async("words.txt")
        self.raw = await self.resources.load_async("words.txt", bytes)
        self.mesh = await self.resources.load_async("box.obj")
        self.app.quit()


class Yielder(MonoBehaviour):
    """The same as a generator."""

    picture: Any = None

    def start(self) -> Generator[Any, Any, None]:
        self.picture = yield self.resources.load_async("picture.png", np.ndarray)


def test_each_kind_by_its_name(make_app: MakeApp, folder: Path) -> None:
    app = make_app(on_error="raise", folder=folder)
    awaiter = app.scene.create("a").add_component(Awaiter)
    end = time.monotonic() + 60
    while not app.is_quitting and time.monotonic() < end:
        app.step()
        time.sleep(0.001)
    assert isinstance(awaiter.model, Model)
    assert awaiter.text == "wörds"
    assert awaiter.raw == "wörds".encode()
    assert isinstance(awaiter.mesh, Mesh)
    assert len(awaiter.mesh.positions) == 3


def test_a_coroutine_yields_for_a_picture(make_app: MakeApp, folder: Path) -> None:
    app = make_app(on_error="raise", folder=folder)
    yielder = app.scene.create("a").add_component(Yielder)
    end = time.monotonic() + 60
    while yielder.picture is None and time.monotonic() < end:
        app.step()
        time.sleep(0.001)
    assert np.array_equal(yielder.picture[..., :3], np.load(folder / "expected.npy"))


@pytest.mark.gl
def test_a_texture_is_uploaded_in_slices(make_drawing_app: MakeApp, folder: Path) -> None:
    app = make_drawing_app(folder=folder, loading_budget_ms=0.001)
    loading = app.resources.load_async("picture.png")
    assert play_until_done(app, loading) > 3
    texture = loading.result()
    assert isinstance(texture, Texture)
    assert texture.texture is not None
    pixels = np.frombuffer(texture.texture.read(), np.uint8).reshape(700, 513, 4)
    assert np.array_equal(pixels[..., :3], np.load(folder / "expected.npy"))
    assert texture.size == (513, 700)


def test_where_nothing_is_drawn_textures_load_all_the_same(make_app: MakeApp, folder: Path) -> None:
    app = make_app(folder=folder)
    assert app.resources.load_async("picture.png", Texture).wait().size == (513, 700)
    assert app.resources.load("picture.png").size == (513, 700)


def test_files_are_read_on_another_thread(make_app: MakeApp, folder: Path) -> None:
    app = make_app(folder=folder)
    threads: list[int] = []

    class Level:
        pass

    def read(path: Path) -> str:
        threads.append(threading.get_ident())
        return path.read_text(encoding="utf-8")

    def finish(text: str) -> Generator[None, Any, Level]:
        threads.append(threading.get_ident())
        yield None
        level = Level()
        level.text = text  # type: ignore[attr-defined]
        return level

    app.resources.register_loader(Level, lambda path: Level(), suffixes=[".XYZ"], read=read, finish=finish)
    loading = app.resources.load_async("thing.xyz")
    play_until_done(app, loading)
    assert loading.result().text == "what"
    assert threads[0] != threading.get_ident() == threads[1]
    assert isinstance(app.resources.load("thing.xyz"), Level)


def test_a_loader_without_a_part_for_threads_runs_on_the_games(make_app: MakeApp, folder: Path) -> None:
    app = make_app(folder=folder)
    app.resources.register_loader(int, lambda path: threading.get_ident())
    assert app.resources.load_async("words.txt", int).wait() == threading.get_ident()


def test_mistakes_are_told_where_they_are_made(make_app: MakeApp, folder: Path) -> None:
    app = make_app(folder=folder)
    with pytest.raises(ResourceError, match=r"no file 'none\.png'"):
        app.resources.load_async("none.png")
    with pytest.raises(ResourceError, match=r"nothing says what '\.xyz' is"):
        app.resources.load_async("thing.xyz")
    with pytest.raises(ResourceError, match="nothing loads float"):
        app.resources.load_async("words.txt", float)
    broken = app.resources.load_async("thing.xyz", Texture)
    play_until_done(app, broken)
    with pytest.raises(ResourceError, match="is not a picture"):
        broken.result()
    with pytest.raises(ResourceError, match="is not a sound"):
        app.resources.load_async("thing.xyz", AudioClip).wait()


def test_the_end_of_an_app_ends_its_loads(make_app: MakeApp, folder: Path) -> None:
    app = make_app(folder=folder)
    loading = app.resources.load_async("net.onnx")
    app.step()
    app.dispose()
    assert loading.is_over
