"""A network inside the frame loop: scheduled in one frame, awaited, delivered in a later one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gameglue import App, BackendType, ModelAsset, MonoBehaviour, Worker
from gameglue.host.resources import Resources
from tests.peer import open_session

MODEL = "digits/digits.onnx"


@pytest.fixture(scope="module")
def reference() -> tuple[np.ndarray, np.ndarray]:
    """An input for the digits network, and what onnxruntime makes of it."""
    session = open_session(Resources().read_bytes(MODEL))
    item = session.get_inputs()[0]
    shape = [size if isinstance(size, int) else 1 for size in item.shape]
    image = np.random.default_rng(3).random(shape, np.float32)
    return image, session.run(None, {item.name: image})[0]


class Reader(MonoBehaviour):
    """Reads one image in each way that a game may."""

    model_asset: ModelAsset
    backend: BackendType = BackendType.CPU
    image: np.ndarray

    def start(self) -> None:
        self.results: dict[str, np.ndarray] = {}
        self.worker = Worker(self.model_asset, self.backend)
        self.app.inference.register(self.worker)
        self.start_coroutine(self.awaits())
        self.start_coroutine(self.awaits_tensor())

    async def awaits(self) -> None:
        self.worker.schedule(self.image)
        self.results["await"] = await self.app.inference.result(self.worker.copy_output())
        self.worker.schedule(self.image)
        tensor = self.worker.peek_output()
        tensor.readback_request()
        await self.app.until_done(tensor)
        self.results["poll"] = tensor.download_to_array()

    async def awaits_tensor(self) -> None:
        self.worker.schedule(self.image)
        self.results["clone"] = np.asarray(await self.worker.copy_output().readback_and_clone_async())

    def on_destroy(self) -> None:
        self.worker.dispose()


def check(app: App, backend: BackendType, reference: tuple[np.ndarray, np.ndarray]) -> None:
    image, expected = reference
    reader = app.scene.create("reader").add_component(Reader, model_asset=MODEL, backend=backend, image=image)
    # Long enough for renderers that draw beside the loop, which runs ahead of them here.
    end = time.monotonic() + 60.0
    while time.monotonic() < end:
        app.step()
        if len(reader.results) == 3:
            break
    assert set(reader.results) == {"await", "poll", "clone"}
    for result in reader.results.values():
        assert np.abs(result - expected).max() / max(1.0, np.abs(expected).max()) < 1e-4
    app.dispose()


def test_on_the_cpu_without_opengl(
    make_app: Callable[..., App], reference: tuple[np.ndarray, np.ndarray]
) -> None:
    check(make_app(on_error="raise"), BackendType.CPU, reference)


@pytest.mark.gl
@pytest.mark.parametrize("backend", [BackendType.GPU_COMPUTE, BackendType.GPU_PIXEL])
def test_on_the_games_own_context(
    make_drawing_app: Callable[..., App], reference: tuple[np.ndarray, np.ndarray], backend: BackendType
) -> None:
    check(make_drawing_app(), backend, reference)


def test_the_same_tensor_is_awaitable_in_asyncio(reference: tuple[np.ndarray, np.ndarray]) -> None:
    image, expected = reference

    async def read(worker: Worker) -> Any:
        worker.schedule(image)
        return await worker.peek_output().readback_and_clone_async()

    with Worker(ModelAsset(Resources().find(MODEL)), BackendType.CPU) as worker:
        result = np.asarray(asyncio.run(read(worker)))
    assert np.abs(result - expected).max() < 1e-4
