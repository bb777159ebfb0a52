"""What compiled kernels compute: types, conversions, atomics, vectors."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from engine.device.native import NativeStore
from engine.device.native import store as module
from engine.device.native.pool import CompilePool
from tests.engine.device.native.test_store import file_of, kernel, load_one, run


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump to read machine code")
@pytest.mark.skipif(module.llvm.get_process_triple()[:6] != "x86_64", reason="looks for x86 registers")
@pytest.mark.parametrize(
    "statements",
    [
        "store_f32(y, i, load_f32(y, i) + np.float32(2.5) * load_f32(x, i))",
        "store_f16(y, i, load_f16(x, i) * load_f16(x, i))",
        "store_bool(y, i, load_i32(x, i) > 3)",
    ],
)
def test_loops_over_buffers_vectorise(store: NativeStore, tmp_path: Path, statements: str) -> None:
    source = kernel(statements, before="import numpy as np")
    load_one(store, source)
    code = file_of(store, source).read_bytes()
    (tmp_path / "code.o").write_bytes(code[code.index(b"\x7fELF") :])
    listing = subprocess.run(
        ["objdump", "-d", str(tmp_path / "code.o")], capture_output=True, text=True, check=True
    ).stdout
    features = module.llvm.get_host_cpu_features()
    registers = ("%ymm", "%zmm") if features.get("avx2") else ("%xmm",)
    assert sum(map(listing.count, registers)) > 4


INTEGERS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]


@pytest.mark.parametrize("kind", [*INTEGERS, "f32", "f64"])
def test_every_type_is_loaded_and_stored(in_process: CompilePool, tmp_path: Path, kind: str) -> None:
    dtype = np.dtype(kind[0] + str(int(kind[1:]) // 8))
    x = np.array([0, 1, 2, 100], dtype)
    if dtype.kind in "iu":
        x[2:] = np.iinfo(dtype).min, np.iinfo(dtype).max
    y, z = np.zeros(4, dtype), np.zeros(4)
    source = kernel(f"store_{kind}(y, i, load_{kind}(x, i))\nstore_f64(z, i, load_{kind}(x, i))")
    run(load_one(NativeStore(tmp_path, in_process), source), 4, x, y, z)
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(z, x.astype(np.float64))


def test_booleans_are_bytes(in_process: CompilePool, tmp_path: Path) -> None:
    x, y = np.array([0, 1, 2, 255], np.uint8), np.full(4, 9, np.uint8)
    source = kernel("store_bool(y, i, not load_bool(x, i))")
    run(load_one(NativeStore(tmp_path, in_process), source), 4, x, y)
    assert y.tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("is_soft", [False, True])
def test_half_conversion_is_the_standard_one(in_process: CompilePool, tmp_path: Path, is_soft: bool) -> None:
    store = NativeStore(tmp_path, in_process)
    bits = np.arange(65536, dtype=np.uint16)
    widened = np.zeros(65536, np.float32)
    half = "soft_f16_bits_to_f32(load_u16(x, i))" if is_soft else "load_f16(x, i)"
    run(load_one(store, kernel(f"store_f32(y, i, {half})")), 65536, bits, widened)
    np.testing.assert_array_equal(widened, bits.view(np.float16).astype(np.float32))

    random = np.random.default_rng(5).integers(0, 1 << 32, 100_000, dtype=np.uint32).view(np.float32)
    large = [65504, 65519.9, 65520, 1e38, np.inf, -np.inf, np.nan]
    edges = np.array([0, -0.0, 6e-8, 2.98e-8, 2.99e-8, *large], np.float32)
    ties = np.array([1 + 2**-11, 1 + 3 * 2**-11, 2**-25, 3 * 2**-26, 2**-14 - 2**-26], np.float32)
    values = np.concatenate([random, edges, ties, widened])
    halves = np.zeros(len(values), np.uint16)
    soft = "store_u16(y, i, soft_f32_to_f16_bits(load_f32(x, i)))"
    source = kernel(soft if is_soft else "store_f16(y, i, load_f32(x, i))")
    run(load_one(store, source), len(values), values, halves)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = values.astype(np.float16)
    np.testing.assert_array_equal(halves.view(np.float16), expected)
    signs = np.signbit(halves.view(np.float16)) == np.signbit(expected)
    assert np.all(signs | np.isnan(expected))


def test_atomics_and_bits(in_process: CompilePool, tmp_path: Path) -> None:
    source = kernel(
        """
store_i64(y, 0, atomic_add_i64(x, 0, 5))
store_i64(y, 1, atomic_exchange_i64(x, 1, 7))
store_i64(y, 2, atomic_cas_i64(x, 2, 30, 31))
store_i64(y, 3, atomic_cas_i64(x, 3, 99, 31))
atomic_store_i64(x, 4, atomic_load_i64(x, 4) + 1)
store_i64(y, 4, atomic_add_i32(z, 1, 2))
store_i64(y, 5, f32_as_i32(1.0))
store_f32(y, 12, i32_as_f32(_types.int32(1073741824)))
store_i64(y, 7, stack_bytes(100) % 64)
set_bytes(y + 64, 255, 8)
"""
    )
    x, y = np.array([10, 20, 30, 40, 50]), np.zeros(9, np.int64)
    z = np.array([1, 2], np.int32)
    run(load_one(NativeStore(tmp_path, in_process), source), 1, x, y, z)
    assert x.tolist() == [15, 7, 31, 40, 51]
    assert z.tolist() == [1, 4]
    assert y.tolist() == [10, 20, 30, 40, 2, 0x3F800000, int(np.float32(2).view(np.int32)), 0, -1]
