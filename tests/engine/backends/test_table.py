"""The table of backends, and how one of them is chosen."""

from __future__ import annotations

import pytest

from engine import BackendType, ModelLoader
from engine.backends import table
from engine.backends.base import Backend
from engine.backends.cpu import precompile
from engine.backends.host import HostBackend
from engine.backends.select import create_backend, may_use_opengl
from engine.backends.table import Entry
from engine.base.errors import DeviceError, InputError
from tests.graphs import node, proto


@pytest.mark.parametrize("entry", table.BACKENDS, ids=lambda entry: entry.name)
def test_an_entry_is_the_class_s(entry: Entry) -> None:
    found = entry.load()
    assert issubclass(found, Backend)
    assert found.name == entry.name
    assert table.named(entry.name) is entry
    assert found.is_host == issubclass(found, HostBackend) == (entry.device is None)


def test_reading_a_model_begins_what_backends_want_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    monkeypatch.setattr(precompile, "precompile_kernels", lambda: begun.append("cpu"))
    layers = [node("Relu", ["x"], ["y"])]
    ModelLoader.load(proto(layers, {"x": ("float32", [3])}, {"y": ("float32", [3])}))
    assert begun == ["cpu"]


def test_names_and_pairs_of_type_and_device_are_unique() -> None:
    assert len({entry.name for entry in table.BACKENDS}) == len(table.BACKENDS)
    assert len({(entry.backend_type, entry.device) for entry in table.BACKENDS}) == len(table.BACKENDS)


class Nowhere:
    """A backend whose device is missing; `on` is not reached."""

    @classmethod
    def device_for(cls, device: object) -> object:
        raise DeviceError("there is no abacus here")

    @classmethod
    def on(cls, device: object) -> object:
        raise AssertionError


class Somewhere(Nowhere):
    """The same with a device."""

    @classmethod
    def device_for(cls, device: object) -> object:
        return "beads"

    @classmethod
    def on(cls, device: object) -> object:
        return f"runs on {device}"


def entry(kind: type[Nowhere], device: str) -> Entry:
    return Entry(device, device, BackendType.GPU_COMPUTE, device, f"{__name__}:{kind.__name__}")  # type: ignore[arg-type]


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two backends of a type, of which the first has no device."""
    kinds = {"abacus": Nowhere, "slide rule": Somewhere}
    monkeypatch.setattr(table, "BACKENDS", tuple(entry(kind, name) for name, kind in kinds.items()))
    monkeypatch.setattr(Entry, "load", lambda self: kinds[self.device])


@pytest.mark.usefixtures("found")
def test_the_first_backend_with_a_device_is_taken() -> None:
    answers = [create_backend(BackendType.GPU_COMPUTE, name) for name in (None, "slide rule")]  # type: ignore[arg-type]
    assert answers == ["runs on beads", "runs on beads"]
    with pytest.raises(DeviceError, match="there is no abacus here"):
        create_backend(BackendType.GPU_COMPUTE, "abacus")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="one of 'abacus', 'slide rule'"):
        create_backend(BackendType.GPU_COMPUTE, "gl")
    with pytest.raises(InputError, match=r"GPU_PIXEL does not run on 'abacus'.*GPU_COMPUTE"):
        create_backend(BackendType.GPU_PIXEL, "abacus")  # type: ignore[arg-type]


@pytest.mark.usefixtures("found")
def test_every_reason_is_told_where_no_device_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Somewhere, "device_for", Nowhere.device_for)
    with pytest.raises(DeviceError, match=r"abacus: there is no.*slide rule: there is no"):
        create_backend(BackendType.GPU_COMPUTE)


def test_what_may_use_opengl() -> None:
    kinds = BackendType.CPU, BackendType.GPU_COMPUTE, BackendType.GPU_PIXEL
    assert [may_use_opengl(kind, None) for kind in kinds] == [False, True, True]
    assert [may_use_opengl(BackendType.GPU_COMPUTE, name) for name in ("gl", "opencl")] == [True, False]
