"""Narrow types take their own size in GPU memory, and no value, length or neighbour changes for it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

from engine.backends.base import Backend, DeviceBuffer
from engine.backends.gl.compute.memory import GLComputeBuffer
from engine.backends.gl.pixel.memory import GLPixelBuffer
from engine.backends.opencl import OpenCLBackend
from engine.backends.opencl.execution.memory import CLBuffer
from engine.base.dtypes import ArithmeticType, arithmetic_type, as_dtype
from engine.base.shapes import DynamicTensorShape
from engine.compiler.plan import Compute
from engine.device.cl.device import CLDevice
from engine.device.gl.device import GLDevice
from engine.device.gl.functions import FUNCTION_TYPE, GL
from engine.graph.model import Input, Layer, Model, Output
from engine.kernels.expr import FLAT, Expr, arg, cast, compare, index, lit, reduce, select, unary
from engine.kernels.value import Value
from tests.engine.backends.gl.conftest import WAYS, made
from tests.engine.backends.steps import F32, Bound, chain_plan, matmul_compute, result_of, tuned_plan, value
from tests.engine.conftest import MakeWorker

NARROW = ("float16", "bfloat16", "int16", "uint16", "int8", "uint8", "bool")
LENGTHS = (1, 2, 3, 5, 4097)


@pytest.fixture(params=[*(pytest.param(way, marks=pytest.mark.gl) for way in WAYS), "opencl"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Each GPU backend, each of its ways of reading and moving data."""
    found: Backend
    if request.param == "opencl":
        cl_device: CLDevice = request.getfixturevalue("cl_device")
        found = OpenCLBackend(cl_device)
    else:
        gl_device: GLDevice = request.getfixturevalue("gl_device")
        found = made(gl_device, request.param)
    yield found
    found.dispose()


def make(name: str, space: tuple[int, ...], formula: Expr, dtype: str) -> Compute:
    """One generic step with an output of any type."""
    return Compute(Value(name, space, as_dtype(dtype)), space, formula, name, "Test")


def computed(
    backend: Backend, formula: Expr, dtype: str, space: tuple[int, ...], **arrays: np.ndarray
) -> np.ndarray:
    """A formula's values."""
    output = make("y", space, formula, dtype)
    return result_of(backend, chain_plan([output]), arrays, output.output)


def every_value(dtype: str) -> np.ndarray:
    """All that the type can hold, from the smallest bit pattern to the largest."""
    if dtype == "bool":
        return np.array([False, True])
    bits = np.arange(1 << (8 * as_dtype(dtype).itemsize))
    return bits.astype(f"uint{8 * as_dtype(dtype).itemsize}").view(as_dtype(dtype))


def assert_same(got: np.ndarray, expected: np.ndarray) -> None:
    """Bit by bit, zeros' signs included; but any NaN is as good as another."""
    assert got.dtype == expected.dtype
    if expected.dtype.kind in "fV" or expected.dtype.name == "bfloat16":
        nan = np.isnan(expected.astype(np.float32))
        np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), nan)
        got, expected = (np.where(nan, 0, x.view(f"u{x.itemsize}")) for x in (got, expected))
    np.testing.assert_array_equal(got, expected)


def bytes_held(buffer: DeviceBuffer) -> int:
    """What OpenGL or OpenCL says that a buffer or texture takes."""
    if isinstance(buffer, CLBuffer):
        return int(buffer.mem.size)
    found = ctypes.c_int64(0)
    if isinstance(buffer, GLComputeBuffer):
        device = buffer.memory.device
        kind = FUNCTION_TYPE(None, ctypes.c_uint, ctypes.c_uint, ctypes.c_void_p)
        with device.current():
            device.gl.glBindBuffer(GL.COPY_READ_BUFFER, buffer.name)
            ask = kind(device.gl.address("glGetBufferParameteri64v"))
            ask(GL.COPY_READ_BUFFER, _BUFFER_SIZE, ctypes.addressof(found))
        return found.value
    assert isinstance(buffer, GLPixelBuffer)
    device = buffer.memory.device
    kind = FUNCTION_TYPE(None, ctypes.c_uint, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p)
    answers = []
    with device.current():
        ask = kind(device.gl.address("glGetTexLevelParameteriv"))
        device.gl.glBindTexture(GL.TEXTURE_2D, buffer.memory.name)
        for name in (_WIDTH, _HEIGHT, *_COMPONENT_BITS):
            ask(GL.TEXTURE_2D, 0, name, ctypes.addressof(found))
            answers.append(found.value)
        device.gl.glBindTexture(GL.TEXTURE_2D, 0)
    width, height, *bits = answers
    assert width * height == buffer.memory.layout.texels
    return width * height * sum(bits) // 8


_BUFFER_SIZE, _WIDTH, _HEIGHT = 0x8764, 0x1000, 0x1001
_COMPONENT_BITS = range(0x805C, 0x8060)


@pytest.mark.parametrize(
    ("dtype", "size"),
    [(t, as_dtype(t).itemsize) for t in NARROW]
    + [("float32", 4), ("int64", 4), ("uint64", 4), ("int4", 1), ("float8_e4m3fn", 1)],
)
def test_memory_and_transfers_take_what_the_type_takes(backend: Backend, dtype: str, size: int) -> None:
    # So many texels fill rows of a texture of no more than that.
    n = 4 * 1024 * 17
    data = np.zeros(n, as_dtype(dtype))
    buffer = backend.create(n, data.dtype, data)
    assert bytes_held(buffer) == n * size
    if isinstance(backend, OpenCLBackend):
        return
    counters = backend.owner.counters
    counters.reset()
    backend.upload(buffer, data)
    readback = backend.readback(buffer)
    readback.wait()
    readback.array()
    assert (counters.bytes_up, counters.bytes_down) == (n * size, n * size)


def test_temporaries_take_what_their_types_take(backend: Backend) -> None:
    if isinstance(backend, OpenCLBackend):
        pytest.skip("its sub-buffers are not counted here")
    n = 4 * 1024 * 17
    sizes = []
    for dtype in ("float32", "float16", "uint8"):
        x = Value("x", (n,), F32)
        steps = [make("t", (n,), x.at(FLAT) + 1.0, dtype)]
        steps.append(make("y", (n,), cast(steps[0].output.at(FLAT), "float32"), "float32"))
        bound = Bound(backend, chain_plan(steps), {"x": np.zeros(n, np.float32)}, {"y": steps[1].output})
        program = bound.program
        sizes.append(program.arena_bytes if hasattr(program, "arena_bytes") else program.temporary_bytes)
        bound.release()
    assert sizes == [4 * n, 2 * n, n]


@pytest.mark.parametrize("dtype", NARROW)
def test_every_value_comes_back_as_it_went(backend: Backend, dtype: str) -> None:
    data = every_value(dtype)
    x = value("x", data)
    n = data.size
    assert_same(computed(backend, x.at(FLAT), dtype, (n,), x=data), data)
    # Not in the output's own order: each element is fetched by itself.
    assert_same(computed(backend, x[index(0) * -1 + (n - 1)], dtype, (n,), x=data), data[::-1])


@pytest.mark.parametrize("dtype", NARROW)
def test_every_value_is_read_as_the_number_it_is(backend: Backend, dtype: str) -> None:
    data = every_value(dtype)
    x = value("x", data)
    wide: ArithmeticType = arithmetic_type(data.dtype) if dtype != "bool" else "int32"
    got = computed(backend, cast(x.at(FLAT), wide), wide, (data.size,), x=data)
    assert_same(got, data.astype(wide))


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dtype", ["float16", "int8", "uint16"])
def test_odd_lengths_leave_their_neighbours_alone(backend: Backend, dtype: str, n: int) -> None:
    """Two temporaries and two outputs, alive together, none a multiple of a word or a texel long."""
    data = (np.arange(n) % 100).astype(dtype)
    x = value("x", data)
    one = lit(1, x.arithmetic)
    a, b = (
        make(name, (n,), x.at(FLAT) + k * one, dtype) for name, k in (("a", lit(2, x.arithmetic)), ("b", one))
    )
    y = make("y", (n,), a.output.at(FLAT) + b.output.at(FLAT), dtype)
    z = make("z", (n,), b.output[index(0) * -1 + (n - 1)] - a.output.at(FLAT), dtype)
    plan = chain_plan([a, b, y, z], ("y", "z"))
    bound = Bound(backend, plan, {"x": data}, {"y": y.output, "z": z.output})
    copied = backend.create(n, data.dtype)
    bound.run()
    backend.copy(bound.buffers["y"], copied)
    bound.buffers["copied"] = copied
    expected = (data + data + np.asarray(3, dtype)).astype(dtype)
    assert_same(bound.result("y"), expected)
    assert_same(bound.result("copied"), expected)
    assert_same(bound.result("z"), (data[::-1] - data - np.asarray(1, dtype)).astype(dtype))
    again = data[::-1].copy()
    backend.upload(bound.buffers["x"], again)
    bound.run()
    assert_same(bound.result("y"), (again + again + np.asarray(3, dtype)).astype(dtype))
    bound.release()


def edges_of_halves() -> np.ndarray:
    """Floats at, between and just beside all float16 and many bfloat16 values, and at the ends."""
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    middles = (halves[:-1].astype(np.float64) + halves[1:]) / 2
    patterns = np.random.default_rng(5).integers(0, 1 << 32, 20_000, np.uint32).view(np.float32)
    ends = np.array([65504, 65519.996, 65520, 65536, 1e9, 3.4e38, np.inf, np.nan, 2**-25, 2**-26], np.float32)
    exact = np.concatenate([halves, middles.astype(np.float32)])
    beside = np.concatenate([np.nextafter(exact, np.float32(k)) for k in (0, np.inf)])
    found = np.concatenate([exact, beside, patterns, ends, exact.view(np.uint32).view(np.float32) * -1])
    # The smallest float32 values may be taken for 0 on a GPU.
    return found[~((found != 0) & (np.abs(found) < 1.2e-38))]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_floats_are_rounded_to_nearest_even(backend: Backend, dtype: str) -> None:
    data = edges_of_halves()
    x = value("x", data)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = data.astype(as_dtype(dtype))
    assert_same(computed(backend, x.at(FLAT), dtype, (data.size,), x=data), expected)


def test_a_nan_stays_one_whatever_its_bits(backend: Backend) -> None:
    """Where only the upper half is stored, one with bits in the lower half alone could become infinite."""
    data = np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF, 0x7F80FFFF], np.uint32).view(np.float32)
    x = value("x", data)
    for dtype in ("float16", "bfloat16"):
        assert np.isnan(computed(backend, x.at(FLAT), dtype, (4,), x=data).astype(np.float32)).all()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_integers_wrap(backend: Backend, dtype: str) -> None:
    data = np.array([0, 1, -1, 127, 128, 255, 256, -129, 32768, 65535, -65537, 2**31 - 1, -(2**31)], np.int32)
    x = value("x", data)
    assert_same(computed(backend, x.at(FLAT), dtype, (data.size,), x=data), data.astype(dtype))
    small = every_value(dtype)
    y = value("y0", small)
    product = computed(backend, y.at(FLAT) * y.at(FLAT) * lit(3, "int32"), dtype, (small.size,), y0=small)
    assert_same(product, (small.astype(np.int64) ** 2 * 3).astype(dtype))


def test_float16_arithmetic_is_rounded_once_and_overflows(backend: Backend) -> None:
    rng = np.random.default_rng(6)
    a, b = (rng.integers(0, 1 << 16, 5001, np.uint16).view(np.float16) for _ in range(2))
    a[:2], b[:2] = (60000, -60000), 2
    x, y = value("a", a), value("b", b)
    with np.errstate(all="ignore"):
        expected = (a.astype(np.float32) * b.astype(np.float32) + np.float32(0.25)).astype(np.float16)
    got = computed(backend, x.at(FLAT) * y.at(FLAT) + 0.25, "float16", (a.size,), a=a, b=b)
    assert_same(got, expected)
    assert got[:2].tolist() == [np.inf, -np.inf]


@pytest.mark.parametrize("n", [3, 1001])
def test_chains_and_sums_end_narrow(backend: Backend, n: int) -> None:
    data = (np.arange(n) * 7 % 255).astype(np.uint8)
    scale = (np.arange(n) % 9 - 4).astype(np.int16)
    x, s = value("x", data), value("s", scale)
    chain = cast(unary("round", cast(x.at(FLAT) * s.at(FLAT), "float32") * 0.75), "int32") + lit(5, "int32")
    expected = np.rint(data.astype(np.float32) * scale * np.float32(0.75)).astype(np.int32) + 5
    for dtype in ("int8", "uint8", "float16"):
        got = computed(backend, cast(chain, arithmetic_type(dtype)), dtype, (n,), x=data, s=scale)
        assert_same(got, expected.astype(dtype))
    total = reduce("sum", 4, lambda r: x[(index(0) + r) % arg(n)])
    sums = sum(data[(np.arange(n) + r) % n].astype(np.int32) for r in range(4))
    assert_same(computed(backend, total, "uint8", (n,), x=data), np.asarray(sums).astype(np.uint8))
    assert_same(computed(backend, total, "uint16", (n,), x=data), np.asarray(sums).astype(np.uint16))


def test_bools_in_and_out(backend: Backend) -> None:
    rng = np.random.default_rng(7)
    a, b = (rng.integers(0, 4, 1003).astype(np.uint8) for _ in range(2))
    x, y = value("a", a), value("b", b)
    less = make("less", (1003,), compare("lt", x.at(FLAT), y.at(FLAT)), "bool")
    flag = less.output
    last = make("y", (1003,), select(flag.at(FLAT), x.at(FLAT), y[index(0) * -1 + 1002]), "uint8")
    bound = Bound(
        backend, chain_plan([less, last], ("less", "y")), {"a": a, "b": b}, {"less": flag, "y": last.output}
    )
    bound.run()
    assert_same(bound.result("less"), a < b)
    assert_same(bound.result("y"), np.where(a < b, a, b[::-1]))
    bound.release()


@pytest.mark.parametrize("dtype", ["float16", "int8", "bool"])
@pytest.mark.gl
def test_tuned_products_end_narrow(backend: Backend, dtype: str) -> None:
    """Tuned kernels store an element a thread: what shares a word with others takes a step of its own."""
    if isinstance(backend, OpenCLBackend):
        pytest.skip("its memory is addressed by bytes")
    rng = np.random.default_rng(8)
    a = rng.integers(-3, 4, (1, 7, 12)).astype(np.float32)
    b = rng.integers(-3, 4, (1, 12, 5)).astype(np.float32)
    step = matmul_compute(
        value("a", a), value("b", b, known=True), (1, 7, 5, 12), (84, 12, 1), (0, 5, 1), None
    )
    step.output = Value("y", step.space, as_dtype(dtype))
    got = result_of(backend, tuned_plan(backend, step), {"a": a, "b": b}, step.output)
    exact = a.astype(np.int32) @ b.astype(np.int32)
    assert_same(got, exact != 0 if dtype == "bool" else exact.astype(dtype))


def test_bfloat16_is_the_upper_half_of_a_float(backend: Backend) -> None:
    data = np.array([1.0, -2.5, 3.140625, 0.0], ml_dtypes.bfloat16)
    x = value("x", data)
    assert computed(backend, x.at(FLAT) * 2.0, "float32", (4,), x=data).tolist() == [2.0, -5.0, 6.28125, 0.0]


def _moves(n: int) -> Model:
    """Reshape (a view), Transpose, Gather and Concat of uint8, with the view read twice."""
    layers = (
        Layer("Reshape", "view", ("x", "shape"), ("v",), {}, version=21),
        Layer("Transpose", "turn", ("v",), ("t",), {"perm": [1, 0]}, version=21),
        Layer("Gather", "pick", ("t", "rows"), ("g",), {"axis": 0}, version=13),
        Layer("Concat", "join", ("g", "v"), ("c",), {"axis": 0}, version=13),
        Layer("Reshape", "flat", ("c", "all"), ("y",), {}, version=21),
    )
    constants = {
        "shape": np.array([n, n]), "rows": np.array([n - 1, 0, 0]), "all": np.array([-1]),
    }  # fmt: skip
    given = Input("x", np.dtype(np.uint8), DynamicTensorShape((n * n,)))
    outputs = tuple(Output(name, None, None) for name in ("y", "v"))
    return Model("moves", (given,), outputs, layers, constants, {"": 21})


@pytest.mark.parametrize("n", [3, 17])
def test_views_and_moves_of_bytes(n: int, channel: str, make_worker: MakeWorker) -> None:
    data = (np.arange(n * n) * 11 % 256).astype(np.uint8)
    worker = make_worker(_moves(n), channel)
    for x in (data, data[::-1].copy()):
        worker.schedule(x)
        v = x.reshape(n, n)
        expected = np.concatenate([v.T[[n - 1, 0, 0]], v]).reshape(-1)
        assert_same(worker.peek_output("y").download_to_array(), expected)
        assert_same(worker.peek_output("v").download_to_array(), v)
