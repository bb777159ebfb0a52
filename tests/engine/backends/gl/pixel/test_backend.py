"""The pixel backend as one ordered stream: snapshots, memory, limits, and nothing that waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

import moderngl
import numpy as np
import pytest

from engine.backends.gl.pixel import record
from engine.backends.gl.pixel.backend import GLPixelBackend
from engine.backends.gl.pixel.memory import GLPixelBuffer
from engine.backends.gl.pixel.programs import PixelPrograms
from engine.backends.gl.pixel.shader import Shader
from engine.backends.gl.pixel.transfer import FencedReadback
from engine.base.errors import DisposedError, KernelCompileError
from engine.compiler.plan import Compute
from engine.device.gl.device import GLDevice
from engine.device.gl.functions import GL, GLFunctions
from engine.kernels.expr import FLAT, arg, cast, index, reduce
from engine.kernels.value import Value
from tests.engine.backends.steps import (
    F32,
    Bound,
    bound_chain,
    chain_expected,
    chain_plan,
    step,
    value,
)

pytestmark = pytest.mark.gl


def test_temporaries_share_textures(backend: GLPixelBackend) -> None:
    x, bound = bound_chain(backend, 6400, 30)
    bound.run()
    np.testing.assert_array_equal(bound.result(), chain_expected(x, 30))
    # Two are alive at a time; a texture of 1,600 texels takes 128 x 13 of them.
    assert bound.program.temporary_bytes == 2 * 16 * 128 * 13


def check_copies(backend: GLPixelBackend, buffer: GLPixelBuffer, data: np.ndarray) -> None:
    """What is uploaded is read back."""
    backend.upload(buffer, data)
    readback = backend.readback(buffer)
    readback.wait()
    np.testing.assert_array_equal(readback.array(), data)


def test_calls_of_uploads_and_snapshots_are_recorded_once_for_all_sizes(
    gl_device: GLDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = GLPixelBackend(gl_device, deferred_transfers=True)
    buffers = [backend.create(n, np.dtype(np.float32)) for n in (10, 5000)]
    made: list[int] = []
    original = record.PixelRecorder.draw

    def draw(self: record.PixelRecorder, *arguments: Any) -> None:
        made.append(1)
        original(self, *arguments)

    monkeypatch.setattr(record.PixelRecorder, "draw", draw)
    for turn in range(3):
        for buffer in buffers:
            data = np.arange(buffer.elements, dtype=np.float32) + turn
            check_copies(backend, buffer, data)
    assert len(made) == 1
    # One that takes too long for one draw.
    with monkeypatch.context() as patched:
        patched.setattr(record, "_DRAW_NS", 1e3)
        data = np.arange(6000, dtype=np.float32)
        buffer = backend.create(6000, np.dtype(np.float32))
        check_copies(backend, buffer, data)
        buffer.release()
    assert len(made) == 3
    # Another texture may have the name of one that was deleted.
    backend.synchronize()
    for buffer in buffers:
        buffer.release()
    data = np.arange(5000, dtype=np.float32)
    for _ in range(3):
        buffer = backend.create(5000, np.dtype(np.float32))
        check_copies(backend, buffer, data)
        buffer.release()
    backend.dispose()


def test_a_snapshot_is_read_while_later_work_runs(gl_device: GLDevice) -> None:
    """On software rendering too, where reading what is being drawn would wait."""
    backend = GLPixelBackend(gl_device, deferred_transfers=True)
    x, short = bound_chain(backend, 4000, 1)
    work = 4_000_000 if gl_device.info.is_software else 40_000_000
    source = value("x", x)
    total = reduce("sum", work // 4000, lambda k: source[(index(0) + k) % arg(4000)])
    heavy = Bound(backend, chain_plan([step("y", source, total)]), {"x": x}, {"y": Value("y", (4000,), F32)})
    short.run()
    backend.flush()
    readback = backend.readback(short.buffers["y"])
    assert isinstance(readback, FencedReadback)
    while not readback.fence.is_open():
        time.sleep(0.001)
    heavy.run()
    backend.flush()
    gl_device.counters.reset()
    readback.done()
    assert gl_device.counters.blocking.total() == 0
    backend.synchronize()
    np.testing.assert_array_equal(readback.array(), chain_expected(x, 1))
    backend.dispose()


def test_long_draws_are_cut_into_parts(
    plain_backend: GLPixelBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.arange(5000, dtype=np.float32)
    source = value("x", x)
    total = reduce("sum", 100, lambda k: source[(index(0) + k) % arg(5000)])
    plan = chain_plan([step("y", source, total)])
    output = {"y": Value("y", (5000,), F32)}
    whole = Bound(plain_backend, plan, {"x": x}, output)
    monkeypatch.setattr(record, "_DRAW_NS", 1e5)
    parts = Bound(plain_backend, plan, {"x": x}, output)
    assert whole.program.draws == 1
    assert parts.program.draws > 4
    whole.run()
    parts.run()
    np.testing.assert_array_equal(parts.result(), whole.result())
    expected = np.convolve(np.tile(x.astype(np.float64), 2), np.ones(100), "valid")[:5000]
    np.testing.assert_allclose(parts.result(), expected, rtol=1e-5)


def test_copies_between_layouts(backend: GLPixelBackend) -> None:
    data = np.arange(9000, dtype=np.int32)
    source, target = backend.create(9000, data.dtype, data), backend.create(500, data.dtype)
    backend.copy(source, target)
    readback = backend.readback(target)
    readback.wait()
    np.testing.assert_array_equal(readback.array(), data[:500])


def test_divisions_of_positions_are_exact(plain_backend: GLPixelBackend) -> None:
    """Positions up to the largest that a texture holds, by sizes that floats cannot tell apart."""
    n = np.array([0, 1, 6, 7, 16_777_215, 16_777_217, 2**30 - 1, 2**30 - 7, 999_999_937], np.int32)
    d = np.array([1, 2, 3, 7, 1000, 4097, 65_537, 16_777_213, 2**29 + 1, 2**30 - 1], np.int32)
    a, b = np.repeat(n, len(d)), np.tile(d, len(n))
    x, y = value("x", a), value("y", b)
    numerator, divisor = cast(x.at(FLAT), "index"), cast(y.at(FLAT), "index")
    for formula, expected in ((numerator // divisor, a // b), (numerator % divisor, a % b)):
        out = Value("z", a.shape, np.dtype(np.int32))
        compute = Compute(out, a.shape, cast(formula, "int32"), "z", "Test")
        bound = Bound(plain_backend, chain_plan([compute], ("z",)), {"x": a, "y": b}, {"z": out})
        bound.run()
        np.testing.assert_array_equal(bound.result("z"), expected)


def test_minimum_limits(minimal_device: GLDevice) -> None:
    backend = GLPixelBackend(minimal_device)
    assert backend.fan_in == 15
    arrays = {f"x{k}": np.full(300, k, np.float32) for k in range(16)}
    values = {name: value(name, array) for name, array in arrays.items()}

    def total(count: int) -> Compute:
        terms = [v[index(0)] for v in list(values.values())[:count]]
        formula = terms[0]
        for term in terms[1:]:
            formula = formula + term
        return step("y", values["x0"], formula)

    bound = Bound(backend, chain_plan([total(15)]), arrays, {"y": Value("y", (300,), F32)})
    bound.run()
    np.testing.assert_array_equal(bound.result(), np.full(300, 105))
    assert backend.refusal(total(15)) is None
    assert "reads 16 tensors" in (backend.refusal(total(16)) or "")
    largest = Value("largest", (1 << 22,), F32)
    assert backend.refusal(step("y", largest, largest[index(0)], 4)) is None
    huge = Value("huge", ((1 << 22) + 1,), F32)
    reason = backend.refusal(step("y", huge, huge[index(0)], 4)) or ""
    assert "4194305 elements" in reason
    assert "1024x1024" in reason
    full = backend.create(1 << 22, F32, np.arange(1 << 22, dtype=np.float32))
    readback = backend.readback(full)
    readback.wait()
    np.testing.assert_array_equal(readback.array()[[0, 1023, 4096, -1]], [0, 1023, 4096, (1 << 22) - 1])
    full.release()
    backend.dispose()


def test_a_game_in_any_state_changes_nothing(
    game: moderngl.Context, game_gl: GLFunctions, backend: GLPixelBackend
) -> None:
    x, bound = bound_chain(backend, 500, 3)
    buffer = game.buffer(b"\x2a" * 4096)
    states = (GL.BLEND, GL.SCISSOR_TEST, GL.RASTERIZER_DISCARD, GL.STENCIL_TEST, GL.CULL_FACE)
    for state in states:
        game_gl.glEnable(state)
    game_gl.glColorMask(0, 0, 1, 0)
    for target in (GL.PIXEL_PACK_BUFFER, GL.PIXEL_UNPACK_BUFFER):
        game_gl.glBindBuffer(target, buffer.glo)
    backend.upload(bound.buffers["x"], x)
    bound.run()
    result = backend.readback(bound.buffers["y"])
    result.wait()
    np.testing.assert_array_equal(result.array(), chain_expected(x, 3))
    for state in states:
        game_gl.glDisable(state)
    game_gl.glColorMask(1, 1, 1, 1)
    for target in (GL.PIXEL_PACK_BUFFER, GL.PIXEL_UNPACK_BUFFER):
        game_gl.glBindBuffer(target, 0)
    assert buffer.read() == b"\x2a" * 4096
    buffer.release()


def test_other_drawing_in_the_same_context_changes_nothing(plain_backend: GLPixelBackend) -> None:
    """Texture conversion draws there too, with state of its own."""
    x, bound = bound_chain(plain_backend, 5000, 4)
    device = plain_backend.device
    with device.current():
        for state in (GL.BLEND, GL.SCISSOR_TEST, GL.DEPTH_TEST, GL.RASTERIZER_DISCARD, GL.DITHER):
            device.gl.glEnable(state)
        device.gl.glScissor(0, 0, 1, 1)
        device.gl.glColorMask(1, 0, 1, 0)
        device.gl.glActiveTexture(GL.TEXTURE0 + 3)
        device.gl.glBindFramebuffer(GL.FRAMEBUFFER, 0)
    bound.run()
    np.testing.assert_array_equal(bound.result(), chain_expected(x, 4))


def test_a_refused_kernel_shows_its_source(plain_backend: GLPixelBackend) -> None:
    source = "#version 330 core\nvoid main() { nonsense; }"
    with pytest.raises(KernelCompileError, match=r"   2 \| void main\(\) \{ nonsense; \}"):
        plain_backend._programs.prepare({"broken": Shader(source, (), (), "float32")})


def test_programs_are_compiled_once_for_all_sizes(plain_backend: GLPixelBackend) -> None:
    x = value("x", np.zeros(4, np.float32))
    kernel = step("y", x, x[index(0)] * 3.75 + 0.0625).as_step().kernel
    assert plain_backend.prepare([kernel]) in (0, 1)
    compiled = plain_backend._programs.compilations
    for n in (1, 50, 4096, 70_000):
        y = value("x", np.zeros(n, np.float32))
        other = step("y", y, y[index(0)] * 3.75 + 0.0625)
        assert plain_backend.prepare([other.as_step().kernel]) == 0
        assert Bound(plain_backend, chain_plan([other]), {"x": np.zeros(n, np.float32)}, {"y": other.output})
    assert plain_backend._programs.compilations == compiled


def numbered_shader(number: int) -> Shader:
    """A shader of these tests only, which nothing has compiled before."""
    source = (
        "#version 330 core\nuniform ivec4 A[1];\nlayout(location = 0) out vec4 written;\n"
        f"void main() {{ written = vec4(A[0]) + {number}.0; }}\n"
    )
    return Shader(source, (), (), "float32")


def test_a_program_is_published_with_its_location(
    plain_backend: GLPixelBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread that finds a program in the table records its location at once."""
    store = plain_backend._programs
    seen: list[bool] = []
    draw = PixelPrograms._draw

    def watched(self: PixelPrograms, shader: Shader, scratch: Any) -> None:
        seen.append("published" in store)
        draw(self, shader, scratch)

    monkeypatch.setattr(PixelPrograms, "_draw", watched)
    store.prepare({"published": numbered_shader(101)})
    assert seen == [False]
    assert "published" in store
    assert store.location("published") >= 0


def test_of_two_threads_that_compile_a_program_the_first_keeps_it(
    plain_backend: GLPixelBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, device = plain_backend._programs, plain_backend.device
    shared = device.create_shared()
    draw = PixelPrograms._draw
    firsts: list[int] = []

    def beside() -> None:
        with store.compiled_in(shared):
            store.prepare({"both": numbered_shader(102)})

    def overtaken(self: PixelPrograms, shader: Shader, scratch: Any) -> None:
        draw(self, shader, scratch)
        if threading.current_thread() is threading.main_thread():
            thread = threading.Thread(target=beside)
            thread.start()
            thread.join()
            firsts.append(store["both"])

    monkeypatch.setattr(PixelPrograms, "_draw", overtaken)
    deleted: list[int] = []
    delete = PixelPrograms._delete

    def noted(self: PixelPrograms, programs: Iterable[int]) -> None:
        deleted.extend(programs)
        delete(self, deleted)

    monkeypatch.setattr(PixelPrograms, "_delete", noted)
    try:
        store.prepare({"both": numbered_shader(102)})
    finally:
        shared.dispose()
    assert [store["both"]] == firsts
    assert len(deleted) == 1
    with device.current():
        assert device.gl.glIsProgram(store["both"])
        device.gl.glUseProgram(0)  # it stays while it is in use
        assert not device.gl.glIsProgram(deleted[0])


def test_nothing_is_left_of_programs_that_were_compiled_with_a_refused_one(
    plain_backend: GLPixelBackend,
) -> None:
    broken = Shader("#version 330 core\nvoid main() { nonsense; }", (), (), "float32")
    with pytest.raises(KernelCompileError, match="nonsense"):
        plain_backend._programs.prepare({"with it": numbered_shader(103), "broken": broken})
    assert "with it" not in plain_backend._programs
    assert plain_backend._programs.prepare({"with it": numbered_shader(103)}) in (0, 1)
    plain_backend.device.check_errors("preparing")


@pytest.mark.parametrize("deferred", [False, True])
def test_buffers_over_parts_of_a_texture(gl_device: GLDevice, deferred: bool) -> None:
    """Written and read in turn, at sizes around whole texels and rows. The texture lives as long as one."""
    backend = GLPixelBackend(gl_device, deferred_transfers=deferred)
    whole = backend.create(3001, F32)
    assert backend.share(whole, 3002) is None
    for elements in (1, 31, 32, 33, 255, 256, 257, 2999, 3001):
        part = backend.share(whole, elements)
        assert part is not None
        assert part.block() == whole.block()
        expected = np.arange(elements, dtype=np.float32) + elements
        backend.upload(part, expected)
        readback = backend.readback(part)
        backend.synchronize()
        readback.wait()
        np.testing.assert_array_equal(readback.array(), expected)
        part.release()
        with pytest.raises(DisposedError):
            backend.readback(part)
    last = backend.share(whole, 5)
    assert last is not None
    whole.release()
    backend.upload(last, np.arange(5, dtype=np.float32))
    readback = backend.readback(last)
    backend.synchronize()
    readback.wait()
    np.testing.assert_array_equal(readback.array(), np.arange(5))
    backend.dispose()
