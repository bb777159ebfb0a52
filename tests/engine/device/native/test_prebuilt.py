"""Object code that the package brings along, and how code for this very processor takes its place."""

from __future__ import annotations

import time
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from engine.device.native import NativeStore, prebuilt
from engine.device.native.pool import CompilePool, CompileRequest
from engine.device.native.prebuilt import Prebuilt, PrebuiltObjects, write_objects
from tests.engine.device.native.test_store import kernel, load_one, run

AXPY = kernel("store_f32(y, i, load_f32(y, i) + 2.5 * load_f32(x, i))", "axpy")


@pytest.fixture(scope="module")
def pool() -> CompilePool:
    return CompilePool(limit=1)


@pytest.fixture(scope="module")
def objects(pool: CompilePool, tmp_path_factory: pytest.TempPathFactory) -> PrebuiltObjects:
    """A file with one kernel."""
    request = CompileRequest(
        AXPY.name, AXPY.whole_text, AXPY.entry, AXPY.signature, prebuilt.symbol_of(AXPY.key)
    )
    compiled = pool.submit(request, lambda made: None).result()
    path = tmp_path_factory.mktemp("objects") / "file"
    write_objects(path, {AXPY.key: Prebuilt(compiled.code, compiled.externals, AXPY.words)})
    return PrebuiltObjects(path)


def computed(address: int) -> np.ndarray:
    x = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    y = np.ones(1000, np.float32)
    run(address, 1000, x, y)
    return y


def test_what_the_package_has_is_not_compiled(
    tmp_path: Path, pool: CompilePool, objects: PrebuiltObjects
) -> None:
    store = NativeStore(tmp_path, pool, objects)
    assert store.is_kept(AXPY)
    address = load_one(store, AXPY)
    assert store.compilations == 0
    assert not list(tmp_path.iterdir())
    expected = computed(load_one(NativeStore(tmp_path, pool), AXPY))
    np.testing.assert_array_equal(computed(address), expected)


def test_code_for_this_processor_takes_its_place_with_the_same_bits(
    tmp_path: Path, pool: CompilePool, objects: PrebuiltObjects
) -> None:
    store = NativeStore(tmp_path, pool, objects)
    first = load_one(store, AXPY)
    store.improve()
    deadline = time.monotonic() + 120
    while (better := load_one(store, AXPY)) == first and time.monotonic() < deadline:
        time.sleep(0.01)
    assert better != first
    assert store.compilations == 0
    # What has the address of the first one goes on with it.
    np.testing.assert_array_equal(computed(better), computed(first))
    path = store.path(AXPY.key)
    assert path is not None
    assert path.is_file()
    assert load_one(NativeStore(tmp_path, pool), AXPY)


def test_plans_of_an_earlier_run_find_the_kernels_of_the_package(
    tmp_path: Path, pool: CompilePool, objects: PrebuiltObjects
) -> None:
    # Where better ones can be compiled, whoever has the sources is to ask for them.
    assert NativeStore(tmp_path, pool, objects).load_stored({AXPY.key: AXPY.words}) is None
    inline = CompilePool(in_process=True)
    found = NativeStore(tmp_path, inline, objects).load_stored({AXPY.key: AXPY.words})
    assert found is not None
    expected = computed(load_one(NativeStore(tmp_path, pool), AXPY))
    np.testing.assert_array_equal(computed(found[AXPY.key]), expected)
    fresh = tmp_path / "fresh"
    assert NativeStore(fresh, inline, objects).load_stored({AXPY.key: AXPY.words - 1}) is None
    assert NativeStore(fresh, inline, objects).load_stored({"0" * 64: 0}) is None


def test_a_file_of_another_version_is_none(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"GGOBJECTS 0\n" + bytes(8))
    with pytest.raises(ValueError, match="another version"):
        PrebuiltObjects(path)


@pytest.mark.parametrize(
    ("features", "level"),
    [
        (prebuilt.LEVELS["x86_64"]["v4"], "v4"),
        (prebuilt.LEVELS["x86_64"]["v3"], "v3"),
        (prebuilt.LEVELS["x86_64"]["v3"][1:], None),
    ],
)
def test_the_highest_level_of_this_processor_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, features: tuple[str, ...], level: str | None
) -> None:
    monkeypatch.setattr(prebuilt, "FOLDER", tmp_path)
    monkeypatch.setattr(prebuilt.platform, "machine", lambda: "AMD64")
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: dict.fromkeys(features, True))
    for number, name in enumerate(("v3", "v4")):
        kernels = {f"{k}": Prebuilt(b"", (), 0) for k in range(number + 1)}
        write_objects(tmp_path / prebuilt.file_name(name), kernels)
    prebuilt.prebuilt_objects.cache_clear()
    found = prebuilt.prebuilt_objects()
    prebuilt.prebuilt_objects.cache_clear()
    assert (0 if found is None else len(found)) == {"v4": 2, "v3": 1, None: 0}[level]
