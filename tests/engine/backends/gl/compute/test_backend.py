"""The compute backend as one ordered stream: snapshots, memory, limits, and nothing that waits."""

from __future__ import annotations

from pathlib import Path

import moderngl
import numpy as np
import pytest

from engine.backends.gl.compute.backend import GLComputeBackend
from engine.backends.gl.compute.programs import ComputePrograms
from engine.base.errors import KernelCompileError
from engine.compiler.plan import Compute
from engine.device.gl.device import GLDevice
from engine.device.gl.functions import GL, GLFunctions
from engine.kernels.expr import arg, cast, index
from engine.kernels.value import Value
from tests.engine.backends.steps import F32, Bound, chain, chain_expected, chain_plan, step, value

pytestmark = pytest.mark.gl


def test_temporaries_share_memory_and_only_dependent_steps_get_barriers(backend: GLComputeBackend) -> None:
    x = np.arange(64, dtype=np.float32)
    source = value("x", x)
    parallel = [step(f"p{k}", source, source[index(0)] * float(k)) for k in range(4)]
    outputs = [c.output for c in parallel]
    total = outputs[0][index(0)]
    for output in outputs[1:]:
        total = total + output[index(0)]
    computes = [*parallel, step("y", source, total)]
    bound = Bound(backend, chain_plan(computes), {"x": x}, {"y": computes[-1].output})
    bound.run()
    np.testing.assert_array_equal(bound.result(), x * 6)
    # One before the first step, one before the sum.
    assert (bound.program.dispatches, bound.program.barriers) == (5, 2)
    long = Bound(backend, chain_plan(chain(source, 30)), {"x": x}, {"y": Value("y", (64,), F32)})
    long.run()
    np.testing.assert_array_equal(long.result(), chain_expected(x, 30))
    # Two temporaries are alive at a time; 29 would take 7424 bytes even without alignment.
    assert long.program.arena_bytes <= 2 * 256


def test_a_step_that_overwrites_what_another_reads_waits_for_it(backend: GLComputeBackend) -> None:
    # t0 dies after the second step, so the third's output takes its place.
    x = np.arange(4096, dtype=np.float32)
    computes = chain(value("x", x), 4)
    bound = Bound(backend, chain_plan(computes), {"x": x}, {"y": computes[-1].output})
    for _ in range(5):
        bound.run()
    np.testing.assert_array_equal(bound.result(), chain_expected(x, 4))


def test_large_index_spaces_fold_into_rows(minimal_device: GLDevice) -> None:
    # 65,535 groups of 64 threads are what one row of a grid may have.
    backend = GLComputeBackend(minimal_device)
    n = 65535 * 64 + 1000
    x = np.arange(1000, dtype=np.float32)
    source = value("x", x)
    formula = cast(index(0), "float32") + source[index(0) % arg(1000)] * 0.0
    bound = Bound(
        backend, chain_plan([step("y", source, formula, n)]), {"x": x}, {"y": Value("y", (n,), F32)}
    )
    bound.run()
    np.testing.assert_array_equal(bound.result(), np.arange(n, dtype=np.float32))


def test_minimum_limits(minimal_device: GLDevice) -> None:
    backend = GLComputeBackend(minimal_device)
    assert backend.fan_in == 7
    arrays = {f"x{k}": np.full(300, k, np.float32) for k in range(8)}
    values = {name: value(name, array) for name, array in arrays.items()}

    def total(count: int) -> Compute:
        terms = [v[index(0)] for v in list(values.values())[:count]]
        formula = terms[0]
        for term in terms[1:]:
            formula = formula + term
        return step("y", values["x0"], formula)

    bound = Bound(backend, chain_plan([total(7)]), arrays, {"y": Value("y", (300,), F32)})
    bound.run()
    np.testing.assert_array_equal(bound.result(), np.full(300, 21))
    assert backend.refusal(total(7)) is None
    assert "reads 8 tensors" in (backend.refusal(total(8)) or "")
    huge = Value("huge", (1 << 22 | 1,), F32)
    reason = backend.refusal(step("y", huge, huge[index(0)], 4))
    assert reason is not None
    assert "16777232 bytes" in reason
    assert "16777216" in reason


def test_a_game_in_any_state_changes_nothing(
    game: moderngl.Context, game_gl: GLFunctions, backend: GLComputeBackend
) -> None:
    x = np.arange(500, dtype=np.float32)
    computes = chain(value("x", x), 3)
    bound = Bound(backend, chain_plan(computes), {"x": x}, {"y": computes[-1].output})
    buffer = game.buffer(b"\x2a" * 4096)
    program = game.compute_shader("#version 430\nlayout(local_size_x = 1) in;\nvoid main() {}")
    for binding in range(4):
        buffer.bind_to_storage_buffer(binding)
    for target in (GL.COPY_READ_BUFFER, GL.COPY_WRITE_BUFFER, GL.PIXEL_PACK_BUFFER, GL.PIXEL_UNPACK_BUFFER):
        game_gl.glBindBuffer(target, buffer.glo)
    game_gl.glUseProgram(program.glo)
    game_gl.glActiveTexture(GL.TEXTURE0 + 5)
    bound.run()
    result = backend.readback(bound.buffers["y"])
    # More of the game's own work, before the result is there.
    program.run(1, 1, 1)
    result.wait()
    np.testing.assert_array_equal(result.array(), chain_expected(x, 3))
    for target in (GL.COPY_READ_BUFFER, GL.COPY_WRITE_BUFFER, GL.PIXEL_PACK_BUFFER, GL.PIXEL_UNPACK_BUFFER):
        game_gl.glBindBuffer(target, 0)
    game_gl.glUseProgram(0)
    game_gl.glActiveTexture(GL.TEXTURE0)
    assert buffer.read() == b"\x2a" * 4096
    buffer.release()
    program.release()


def test_a_refused_kernel_shows_its_source(texel_backend: GLComputeBackend) -> None:
    store = ComputePrograms.of(texel_backend.device)
    with pytest.raises(KernelCompileError, match=r"   2 \| void main\(\) \{ nonsense; \}"):
        store.prepare({"broken": "#version 430\nvoid main() { nonsense; }"})
    assert "broken" not in store


def test_programs_are_compiled_once_and_stored(texel_backend: GLComputeBackend, tmp_path: Path) -> None:
    device = texel_backend.device
    x = value("x", np.zeros(4, np.float32))
    kernel = step("y", x, x[index(0)] * 3.25 + 0.125).as_step().kernel
    assert texel_backend.prepare([kernel]) in (0, 1)
    seen: list[tuple[int, int]] = []
    assert texel_backend.prepare([kernel, kernel], lambda ready, total: seen.append((ready, total))) == 0
    assert seen == [(0, 0)]
    source = texel_backend.source(kernel)
    store = ComputePrograms(device, tmp_path)
    assert store.prepare({"k": source}, lambda ready, total: seen.append((ready, total))) == 1
    assert seen[-1] == (1, 1)
    files = list(tmp_path.glob("*.bin"))
    if not files:
        pytest.skip("this driver gives out no program binaries")
    assert ComputePrograms(device, tmp_path).prepare({"k": source}) == 0
    # A damaged file costs a compilation, no more.
    files[0].write_bytes(files[0].read_bytes()[:-7] + b"garbage")
    assert ComputePrograms(device, tmp_path).prepare({"k": source}) == 1
    device.check_errors("loading stored programs")
