"""Readbacks and uploads: in order, never waiting, giving back what they take."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator, Sequence

import moderngl
import numpy as np
import pytest

from engine.base.errors import DisposedError, ValuePending
from engine.device.gl.counting import CountingLoader
from engine.device.gl.device import GLDevice
from engine.device.gl.fence import Fence
from engine.device.gl.functions import GL

pytestmark = pytest.mark.gl


class Slow:
    """A texture that takes llvmpipe a good while to draw; each value is a sum of sines."""

    def __init__(self, device: GLDevice) -> None:
        ctx = device.ctx
        self.texture = ctx.texture((128, 128), 4, dtype="f4")
        self.framebuffer = ctx.framebuffer([self.texture])
        self.program = ctx.program(
            vertex_shader="""#version 330
            void main() { gl_Position = vec4(gl_VertexID % 2 * 4 - 1, gl_VertexID / 2 * 4 - 1, 0, 1); }""",
            fragment_shader="""#version 330
            uniform int steps; out vec4 color;
            void main() {
                float sum = 0.0;
                for (int i = 0; i < steps; ++i) sum += sin(float(i) + gl_FragCoord.x);
                color = vec4(sum, gl_FragCoord.xy, 1.0);
            }""",
        )
        self.array = ctx.vertex_array(self.program, [])
        self.device = device

    def draw(self, steps: int) -> None:
        self.program["steps"] = steps
        self.framebuffer.use()
        self.array.render(vertices=3)

    def release(self) -> None:
        with self.device.current():
            self.device.ctx.screen.use()
            for part in (self.array, self.program, self.framebuffer, self.texture):
                part.release()


@pytest.fixture
def slow(gl_device: GLDevice) -> Iterator[Slow]:
    with gl_device.current():
        slow = Slow(gl_device)
        slow.draw(1)
    yield slow
    slow.release()


def test_a_readback_is_not_there_before_the_work_is_done(gl_device: GLDevice, slow: Slow) -> None:
    if "llvmpipe" not in gl_device.info.renderer:
        pytest.skip("how long the work takes is only known of llvmpipe")
    if os.environ.get("LP_NUM_THREADS") == "0":
        pytest.skip("llvmpipe draws within the calls here; see tests/drivers, which runs this with threads")
    values = np.arange(8, dtype=np.float32)
    with gl_device.current():
        buffer = gl_device.ctx.buffer(values.tobytes())
        gl_device.wait(gl_device.gl.glFenceSync(GL.SYNC_GPU_COMMANDS_COMPLETE, 0))
        gl_device.counters.reset()
        slow.draw(5000)
        # Not the texture itself: llvmpipe waits when it is asked to read one, whatever it reads into.
        readback = gl_device.staging.read_buffer(buffer.glo, 32, np.float32, written_by_shader=False)
    assert not readback.done()
    with pytest.raises(ValuePending):
        readback.array()
    polls = 0
    while not readback.done():
        polls += 1
        time.sleep(0.001)
    assert polls > 2
    assert np.array_equal(readback.array(), values)
    assert gl_device.counters.blocking.total() == 0
    buffer.release()


def test_a_drawn_texture_arrives_as_it_was_drawn(gl_device: GLDevice, slow: Slow) -> None:
    with gl_device.current():
        slow.draw(10)
        readback = gl_device.staging.read_texture(
            slow.texture.glo, (128, 128), GL.RGBA, GL.FLOAT, np.float32, (128, 128, 4)
        )
    readback.wait()
    value = readback.array()
    x = np.arange(128) + 0.5
    expected = np.sin(np.arange(10)[:, None] + x).sum(axis=0)
    assert np.abs(value[5, :, 0] - expected).max() < 1e-3
    assert np.array_equal(value[7, :, 1], x)
    assert np.all(value[7, :, 2] == 7.5)


def test_a_readback_is_a_snapshot(game: moderngl.Context, gl_device: GLDevice) -> None:
    values = np.arange(6, dtype=np.int32)
    with gl_device.current():
        buffer = gl_device.ctx.buffer(values.tobytes())
        before = gl_device.staging.read_buffer(buffer.glo, 24, np.int32)
        gl_device.staging.write_buffer(buffer.glo, -values)
        after = gl_device.staging.read_buffer(buffer.glo, 24, np.int32)
    after.wait()
    assert before.done()
    assert np.array_equal(before.array(), values)
    assert np.array_equal(after.array(), -values)
    assert gl_device.counters.readbacks == 2
    assert gl_device.counters.bytes_down == 48
    assert gl_device.counters.bytes_up == 24
    buffer.release()


def test_array_copies_the_value_and_gives_the_buffer_back(gl_device: GLDevice) -> None:
    values = np.arange(4, dtype=np.float32)
    with gl_device.current():
        buffer = gl_device.ctx.buffer(values.tobytes())
        readback = gl_device.staging.read_buffer(buffer.glo, 16, np.float32)
    readback.wait()
    view = readback.view()
    assert not view.flags.writeable
    assert np.array_equal(view, values)
    assert np.array_equal(readback.array(), values)
    with pytest.raises(DisposedError, match="released"):
        readback.view()
    buffer.release()


def test_staging_buffers_are_used_again(gl_device: GLDevice) -> None:
    with gl_device.current():
        buffer = gl_device.ctx.buffer(reserve=1024)
    pool = gl_device.staging

    def round_trip() -> None:
        pool.write_buffer(buffer.glo, np.zeros(256, np.float32))
        readback = pool.read_buffer(buffer.glo, 1024, np.float32)
        readback.wait()
        readback.array()
        gl_device.collect()

    round_trip()
    round_trip()
    before = len(pool._all)
    for _ in range(20):
        round_trip()
    assert len(pool._all) == before
    buffer.release()


def test_uploads_of_a_block_have_one_fence(gl_device: GLDevice) -> None:
    with gl_device.current():
        buffer = gl_device.ctx.buffer(reserve=64)
    pool = gl_device.staging

    def upload() -> list[int]:
        with gl_device.current():
            for _ in range(3):
                pool.write_buffer(buffer.glo, np.zeros(16, np.float32))
        found = [len(those) for _, those in pool._busy_uploads]
        with gl_device.current():
            Fence(gl_device).wait()
        return found

    for _ in range(3):
        upload()
    before = len(pool._all)
    assert [upload() for _ in range(5)] == [[3]] * 5
    assert len(pool._all) == before
    buffer.release()


def test_a_dropped_readback_gives_its_buffer_back(gl_device: GLDevice) -> None:
    pool = gl_device.staging
    with gl_device.current():
        buffer = gl_device.ctx.buffer(reserve=64)
        readback = pool.read_buffer(buffer.glo, 64, np.float32)
        idle = pool._idle_bytes
        del readback
        gc.collect()
        gl_device.collect()
        assert pool._idle_bytes > idle
        buffer.release()


def test_buffers_of_another_thread_are_used_for_transfers_to_come(game: moderngl.Context) -> None:
    with GLDevice(game) as device:
        pool, shared, size = device.staging, device.create_shared(), 5 << 18

        def create_ahead() -> None:
            for upload in (False, True):
                pool.create_ahead(size, upload, shared)

        def there() -> int:
            thread = threading.Thread(target=create_ahead)
            thread.start()
            thread.join()
            return len(pool._all)

        with device.current():
            buffer = device.ctx.buffer(reserve=size)
        # Nothing was ever transferred.
        assert there() == 0
        small, values = np.zeros(16, np.float32), np.arange(size // 4, dtype=np.float32)
        pool.write_buffer(buffer.glo, small)
        pool.read_buffer(buffer.glo, 64, np.float32).wait()
        before = len(pool._all)
        # A third less takes a smaller buffer.
        created = there()
        assert created == before + 4
        pool.write_buffer(buffer.glo, values)
        readback = pool.read_buffer(buffer.glo, size, np.float32)
        assert len(pool._all) == created
        readback.wait()
        np.testing.assert_array_equal(readback.array(), values)
        shared.dispose()
        buffer.release()
    assert not pool._all


@pytest.mark.parametrize("sizes", [(3, 0, 16, 1, 17), (5, 16383, 16384, 1, 200_000), (16_000,) * 20])
def test_several_buffers_are_written(gl_device: GLDevice, sizes: Sequence[int]) -> None:
    """Data of any bytes, which share staging buffers or do not."""
    arrays = [np.arange(size).astype(np.uint8) + number for number, size in enumerate(sizes)]
    with gl_device.current():
        buffers = [gl_device.ctx.buffer(reserve=max(size, 1)) for size in sizes]
        before = gl_device.counters.uploads
        gl_device.staging.write_buffers(
            [(buffer.glo, array) for buffer, array in zip(buffers, arrays, strict=True)]
        )
        assert gl_device.counters.uploads - before == sum(size > 0 for size in sizes)
        for buffer, array in zip(buffers, arrays, strict=True):
            np.testing.assert_array_equal(
                np.frombuffer(buffer.read(array.size or 1), np.uint8)[: array.size], array
            )
            buffer.release()


def test_empty_readbacks_and_uploads(gl_device: GLDevice) -> None:
    with gl_device.current():
        buffer = gl_device.ctx.buffer(reserve=16)
        gl_device.staging.write_buffer(buffer.glo, np.zeros(0, np.float32))
        readback = gl_device.staging.read_buffer(buffer.glo, 0, np.float32)
    readback.wait()
    assert readback.array().shape == (0,)
    buffer.release()


@pytest.mark.parametrize("persistent", [True, False], ids=["mapped for life", "mapped when done"])
def test_nothing_blocks(game: moderngl.Context, persistent: bool) -> None:
    loaders: list[CountingLoader] = []

    def count(loader: object) -> CountingLoader:
        loaders.append(CountingLoader(loader))
        return loaders[0]

    with GLDevice(game, loader_wrapper=count) as device:
        device.staging._persistent = device.staging._persistent and persistent
        values = np.arange(100, dtype=np.float32)
        with device.current():
            buffer = device.ctx.buffer(reserve=400)
            texture = device.ctx.texture((5, 5), 4, dtype="f4")
        with loaders[0].watching() as counts:
            for step in range(5):
                device.staging.write_buffer(buffer.glo, values + step)
                device.staging.write_texture(texture.glo, (5, 5), GL.RGBA, GL.FLOAT, values - step)
                first = device.staging.read_buffer(buffer.glo, 400, np.float32)
                second = device.staging.read_texture(
                    texture.glo, (5, 5), GL.RGBA, GL.FLOAT, np.float32, (5, 5, 4)
                )
                while not (first.done() and second.done()):
                    time.sleep(0.0001)
                assert np.array_equal(first.array(), values + step)
                assert np.array_equal(second.array().ravel(), values - step)
        assert not counts
        with loaders[0].watching() as counts, device.current():
            buffer.read()
            device.gl.glFinish()
        assert set(counts) == {"glFinish"} | ({"glMapBufferRange"} & set(counts))
        with device.current():
            buffer.release()
            texture.release()
        device.check_errors("testing")
