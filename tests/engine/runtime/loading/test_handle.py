"""`Loading`: polled, awaited, waited for, cancelled, failed; and the time that it takes of its caller."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Generator
from typing import Any

import pytest

from engine import CancelledError, DeviceError, Loading, ModelImportError, ModelLoader, advance_loads
from engine.base.sliced_thread import SlicedThread
from engine.runtime.loading.handle import Steps
from tests.graphs import mlp


def three() -> Steps[str]:
    text: str = yield SlicedThread(lambda: "a")
    yield None
    text += yield SlicedThread(lambda: "b")
    return text + "c"


def polled(loading: Loading[Any]) -> Any:
    end = time.monotonic() + 30
    while not loading.is_done():
        assert time.monotonic() < end
        time.sleep(0.001)
    return loading.result()


def test_polling_makes_it_go_on() -> None:
    assert polled(Loading(three())) == "abc"


def test_waiting_makes_it_go_on() -> None:
    loading = Loading(three())
    assert loading.wait() == "abc"
    assert loading.progress == 1.0
    assert advance_loads() == 0


def test_a_host_makes_all_of_them_go_on() -> None:
    loadings = [Loading(three()) for _ in range(3)]
    while advance_loads(1.0):
        time.sleep(0.001)
    assert [loading.result() for loading in loadings] == ["abc"] * 3


def test_it_can_be_awaited_in_asyncio() -> None:
    async def ask() -> str:
        return await Loading(three())

    assert asyncio.run(ask()) == "abc"


def test_what_it_raises_is_raised_by_the_result() -> None:
    def steps() -> Generator[None, None, str]:
        yield None
        raise ValueError("broken")

    loading = Loading(steps())
    with pytest.raises(ValueError, match="broken"):
        polled(loading)
    assert isinstance(loading.error, ValueError)


def test_an_error_of_a_thread_reaches_the_steps() -> None:
    def fail() -> str:
        raise KeyError("inner")

    def steps() -> Steps[str]:
        try:
            yield SlicedThread(fail)
        except KeyError:
            return "caught"
        return "not raised"

    assert Loading(steps()).wait() == "caught"


def test_a_cancelled_one_is_done_and_its_steps_are_closed() -> None:
    closed = []

    def steps() -> Generator[None, None, str]:
        try:
            while True:
                yield None
        finally:
            closed.append(True)

    loading = Loading(steps())
    loading.advance(0.1)
    loading.cancel()
    assert loading.is_done()
    with pytest.raises(CancelledError, match="cancelled"):
        loading.result()
    advance_loads()
    assert closed
    assert loading.is_over


def test_a_result_that_is_not_there_yet_says_what_to_do() -> None:
    loading = Loading(three(), name="net.onnx")
    with pytest.raises(CancelledError, match="net.onnx is still being loaded; await"):
        loading.result()
    loading.wait()


def test_another_thread_may_ask_but_not_advance() -> None:
    loading = Loading(three())
    found: list[object] = []

    def other() -> None:
        found.append(loading.is_done())
        try:
            loading.advance(1.0)
        except DeviceError as error:
            found.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert found[0] is False
    assert isinstance(found[1], DeviceError)
    loading.wait()


def test_a_budget_ends_a_slice() -> None:
    rounds = []

    def steps() -> Generator[None, None, None]:
        for _ in range(100):
            end = time.perf_counter() + 0.001
            while time.perf_counter() < end:
                pass
            rounds.append(True)
            yield None

    loading = Loading(steps())
    loading.advance(3.0)
    assert 1 <= len(rounds) <= 4
    assert loading.longest_ms >= 1.0
    loading.wait()


def test_a_model_is_loaded_as_it_is_at_once(tmp_path: Any) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(mlp((6, 8, 3)))
    model = polled(ModelLoader.load_async(path))
    expected = ModelLoader.load(path)
    assert [str(layer) for layer in model.layers] == [str(layer) for layer in expected.layers]
    assert model.constants.keys() == expected.constants.keys()


def test_a_model_that_is_not_there_is_told_by_the_result() -> None:
    with pytest.raises(ModelImportError, match=r"there is no file 'nowhere\.onnx'"):
        polled(ModelLoader.load_async("nowhere.onnx"))
