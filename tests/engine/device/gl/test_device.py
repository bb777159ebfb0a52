"""The GL device: a context beside the game's that shares its objects and nothing else."""

from __future__ import annotations

import dataclasses
import gc
import threading
import weakref
from collections.abc import Callable, Iterator

import moderngl
import numpy as np
import pytest

from engine import BackendType, ModelLoader, Worker
from engine.base.errors import DeviceError, DisposedError
from engine.device.gl import create
from engine.device.gl.context import VERSIONS, Binding, NativeContext
from engine.device.gl.context_switch import current_platform
from engine.device.gl.device import GLDevice
from engine.device.gl.functions import GL, SIGNATURES, GLFunctions
from engine.device.gl.sentinel import Sentinel
from tests.conftest import ROOT
from tests.engine.gl_limits import minimum

pytestmark = pytest.mark.gl

RunChild = Callable[..., str]


def current_handle() -> int:
    platform = current_platform()
    return platform.current_context() if platform is not None else 0


def test_a_buffer_of_the_game_is_readable_in_the_device(game: moderngl.Context, gl_device: GLDevice) -> None:
    values = np.arange(16, dtype=np.float32)
    buffer = game.buffer(values.tobytes())
    with gl_device.current(after_game=True):
        seen = gl_device.ctx.external_buffer(buffer.glo, buffer.size).read()
    assert np.array_equal(np.frombuffer(seen, np.float32), values)
    buffer.release()


def test_a_buffer_and_a_texture_of_the_device_are_readable_in_the_game(
    game: moderngl.Context, gl_device: GLDevice
) -> None:
    values = np.arange(12, dtype=np.float32)
    with gl_device.current(before_game=True):
        buffer = gl_device.ctx.buffer(values.tobytes())
        texture = gl_device.ctx.texture((3, 1), 4, values.tobytes(), dtype="f4")
    assert np.array_equal(np.frombuffer(game.external_buffer(buffer.glo, 48).read(), np.float32), values)
    framebuffer = game.framebuffer([game.external_texture(texture.glo, (3, 1), 4, 0, "f4")])
    assert np.array_equal(np.frombuffer(framebuffer.read(components=4, dtype="f4"), np.float32), values)
    framebuffer.release()
    with gl_device.current():
        buffer.release()
        texture.release()


def test_a_program_of_the_device_computes_on_a_buffer_of_the_game(
    game: moderngl.Context, gl_device: GLDevice
) -> None:
    if not gl_device.info.supports_compute:
        pytest.skip("needs OpenGL 4.3")
    buffer = game.buffer(np.arange(8, dtype=np.float32).tobytes())
    with gl_device.current(after_game=True, before_game=True):
        shader = gl_device.ctx.compute_shader(
            """#version 430
            layout(local_size_x = 8) in;
            layout(std430, binding = 0) buffer Data { float data[]; };
            void main() { data[gl_GlobalInvocationID.x] *= 3.0; }"""
        )
        gl_device.gl.glBindBufferBase(GL.SHADER_STORAGE_BUFFER, 0, buffer.glo)
        gl_device.gl.glUseProgram(shader.glo)
        gl_device.gl.glDispatchCompute(1, 1, 1)
        gl_device.gl.glMemoryBarrier(GL.BUFFER_UPDATE_BARRIER_BIT)
        shader.release()
    assert np.array_equal(np.frombuffer(buffer.read(), np.float32), 3.0 * np.arange(8))
    buffer.release()


def test_leaving_makes_current_what_was_so_before(game: moderngl.Context, gl_device: GLDevice) -> None:
    outside = current_handle()
    with gl_device.current():
        inside = current_handle()
        with gl_device.current():
            assert current_handle() == inside
        assert current_handle() == inside
    assert inside != outside
    assert current_handle() == outside
    with pytest.raises(RuntimeError, match="from within"), gl_device.current():
        raise RuntimeError("from within")
    assert current_handle() == outside
    assert gl_device.counters.switches == 2


def test_leaving_leaves_nothing_current_where_nothing_was(gl_device: GLDevice, no_context: None) -> None:
    with gl_device.current():
        assert current_handle() != 0
    assert current_handle() == 0
    assert gl_device.poll(passed_fence(gl_device))
    assert current_handle() == 0


def test_moderngl_keeps_the_default_context_of_the_game(game: moderngl.Context) -> None:
    before = moderngl.get_context()
    with GLDevice(game) as device:
        assert moderngl.get_context() is before
        assert device.ctx is not before
    assert moderngl.get_context() is before


def test_a_context_has_one_device(game: moderngl.Context, gl_device: GLDevice) -> None:
    before = moderngl.get_context()
    assert GLDevice.for_context(game) is gl_device
    assert GLDevice.for_context(gl_device.ctx) is gl_device
    assert moderngl.get_context() is before
    assert GLDevice.for_context() is gl_device
    assert gl_device.shares_with_game
    assert gl_device.is_shared_with_current()


def test_the_context_that_is_current_is_known_whatever_moderngl_takes_for_its_default(
    game: moderngl.Context, gl_device: GLDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another app's context, or a wrapper that the game made twice, becomes moderngl's default one."""
    monkeypatch.setattr("moderngl._store.default_context", None)
    assert GLDevice.for_context() is gl_device
    again = moderngl.create_context()
    assert again is not game
    assert GLDevice.for_context(again) is gl_device
    assert GLDevice.for_context() is gl_device


def test_a_private_device_needs_no_context(game: moderngl.Context) -> None:
    platform = current_platform()
    assert platform is not None
    binding = platform.binding()
    platform.release_current(binding)
    try:
        with GLDevice.for_context() as private:
            assert not private.shares_with_game
            assert current_handle() == 0
            assert GLDevice.for_context() is private
            with private.current(after_game=True, before_game=True):
                buffer = private.ctx.buffer(b"abcd")
                assert buffer.read() == b"abcd"
            platform.make_current(binding)
            assert not private.is_shared_with_current()
            platform.release_current(binding)
    finally:
        platform.make_current(binding)


@pytest.fixture
def no_context(game: moderngl.Context) -> Iterator[None]:
    """Nothing is current on this thread, as in a script without a window."""
    platform = current_platform()
    assert platform is not None
    binding = platform.binding()
    platform.release_current(binding)
    yield
    platform.make_current(binding)


def passed_fence(device: GLDevice) -> int:
    """A fence that the GPU has passed."""
    with device.current():
        fence: int = device.gl.glFenceSync(GL.SYNC_GPU_COMMANDS_COMPLETE, 0)
    device.wait(fence)
    return fence


class AskedFences:
    """Takes the place of `glClientWaitSync`: notes which context is current, and gives the next answer."""

    def __init__(self, device: GLDevice, monkeypatch: pytest.MonkeyPatch, *answers: int) -> None:
        self._real = device.gl.glClientWaitSync
        self._answers = list(answers)
        self.asked_in: list[int] = []
        monkeypatch.setattr(device.gl, "glClientWaitSync", self)

    def __call__(self, fence: int, flags: int, timeout: int) -> int:
        self.asked_in.append(current_handle())
        return self._answers.pop(0) if self._answers else self._real(fence, flags, timeout)


def test_a_private_device_is_asked_in_its_own_context(
    no_context: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a current context drivers answer 0, which says nothing about the fence."""
    with GLDevice() as device:
        own, fence = device._native.handle, passed_fence(device)
        fences = AskedFences(device, monkeypatch)
        assert device.poll(fence)
        device.wait(fence)
        with device.current():
            assert device.poll(fence)
        assert fences.asked_in == [own, own, own]
        assert current_handle() == 0


def test_a_private_device_is_asked_in_its_own_context_while_a_game_draws(
    game: moderngl.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = current_platform()
    assert platform is not None
    binding = platform.binding()
    platform.release_current(binding)
    device = GLDevice()
    platform.make_current(binding)
    outside = current_handle()
    fence = passed_fence(device)
    fences = AskedFences(device, monkeypatch)
    assert device.poll(fence)
    assert fences.asked_in == [device._native.handle]
    assert current_handle() == outside
    device.dispose()


@pytest.mark.parametrize("kind", [BackendType.GPU_COMPUTE, BackendType.GPU_PIXEL])
def test_readbacks_of_a_private_device_ask_in_its_context(
    no_context: None, monkeypatch: pytest.MonkeyPatch, kind: BackendType
) -> None:
    with GLDevice() as device:
        if kind is BackendType.GPU_COMPUTE and not device.info.supports_compute:
            pytest.skip("needs OpenGL 4.3")
        model = ModelLoader.load(ROOT / "assets" / "digits" / "digits.onnx")
        image = np.random.default_rng(0).random((1, 1, 28, 28), np.float32)
        with Worker(model, kind, device=device) as worker, Worker(model) as reference:
            reference.schedule(image)
            wanted = reference.peek_output().download_to_array()
            fences = AskedFences(device, monkeypatch, GL.TIMEOUT_EXPIRED, GL.TIMEOUT_EXPIRED)
            worker.schedule(image)
            output = worker.peek_output()
            output.readback_request()
            assert not output.is_readback_request_done()
            while not output.is_readback_request_done():
                pass
            assert np.abs(output.download_to_array() - wanted).max() < 1e-4
            assert len(fences.asked_in) >= 3
            assert set(fences.asked_in) == {device._native.handle}
            assert current_handle() == 0


def test_only_two_answers_mean_that_a_fence_was_passed(
    game: moderngl.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = GLDevice(game)
    answers = (GL.ALREADY_SIGNALED, GL.CONDITION_SATISFIED, GL.TIMEOUT_EXPIRED, 0, 0, GL.WAIT_FAILED)
    fence = passed_fence(device)
    fences = AskedFences(device, monkeypatch, *answers)
    assert device.poll(fence)
    assert device.poll(fence)
    assert not device.poll(fence)
    with pytest.raises(DeviceError, match="cannot tell whether a fence was passed"):
        device.poll(fence)
    with pytest.raises(DeviceError, match="cannot tell whether a fence was passed"):
        device.wait(fence)
    device.check()
    with pytest.raises(DeviceError, match="context was lost"):
        device.poll(fence)
    assert device.is_lost
    assert len(fences.asked_in) == len(answers)
    device.dispose()


def test_the_version_is_the_game_s_or_a_newer_one(game: moderngl.Context, gl_device: GLDevice) -> None:
    assert gl_device.info.version_code == gl_device.ctx.version_code >= game.version_code
    assert gl_device.info.renderer == game.info["GL_RENDERER"]
    if "llvmpipe" in gl_device.info.renderer:
        assert gl_device.info.is_software


@pytest.mark.parametrize("newest", [(4, 6), (4, 5), (4, 3), (3, 3)])
def test_a_game_that_asks_for_3_3_gets_a_device_of_the_newest_version(
    game: moderngl.Context, monkeypatch: pytest.MonkeyPatch, newest: tuple[int, int]
) -> None:
    """Drivers that give exactly the version they are asked for: without this no compute shader would run."""
    platform = current_platform()
    assert platform is not None
    asked: list[tuple[int, int]] = []
    real = platform.create_sibling

    def create_sibling(version: tuple[int, int], of: Binding | None = None) -> NativeContext:
        asked.append(version)
        if version > newest:
            raise DeviceError("the driver has no such version")
        # Mesa's drivers have not all of them, and give a newer one.
        return real((3, 3), of)

    monkeypatch.setattr(platform, "create_sibling", create_sibling)
    monkeypatch.setattr(create, "query_version_code", lambda gl: 330)
    with GLDevice(game) as device:
        assert device.is_shared_with_current()
        wanted = asked[: asked.index(newest) + 1]
    assert wanted == [version for version in VERSIONS if version >= newest]


def test_names_alone_do_not_make_contexts_share(game: moderngl.Context, gl_device: GLDevice) -> None:
    """NVIDIA's driver counts objects from 1 in each context, so another has the same ones."""
    with gl_device.current():
        other = Sentinel(gl_device.gl)
        assert other.is_in_current()
        other._source += b"1"
        assert not other.is_in_current()
        other.delete()
        assert not other.is_in_current()
    assert gl_device.is_shared_with_current()


def test_another_thread_is_refused(gl_device: GLDevice) -> None:
    caught: list[Exception] = []

    def enter() -> None:
        try:
            gl_device.current().__enter__()
        except DeviceError as error:
            caught.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert "thread" in str(caught[0])


def test_use_after_dispose_raises(game: moderngl.Context) -> None:
    device = GLDevice(game)
    device.dispose()
    device.dispose()
    for use in (
        lambda: device.current().__enter__(),
        lambda: device.ctx.buffer,
        lambda: device.gl.glFlush,
        lambda: device.poll(1),
    ):
        with pytest.raises(DisposedError, match="disposed"):
            use()


def test_what_another_thread_drops_is_freed_on_the_device_thread(gl_device: GLDevice) -> None:
    with gl_device.current():
        buffers = [gl_device.ctx.buffer(reserve=16)]
        released_first = gl_device.ctx.buffer(reserve=16)
        name = buffers[0].glo
        released_first.release()
        del released_first
        gl_device.collect()

        def drop() -> None:
            buffers.clear()
            gc.collect()

        thread = threading.Thread(target=drop)
        thread.start()
        thread.join()
        assert gl_device.gl.glIsBuffer(name)
        assert gl_device.collect() == 1
        assert not gl_device.gl.glIsBuffer(name)


def test_work_inside_an_inner_block_waits_for_the_game(game: moderngl.Context, gl_device: GLDevice) -> None:
    buffer = game.buffer(b"\0" * 16)
    with gl_device.current():
        inside = current_handle()
        with gl_device.current(after_game=True):
            assert current_handle() == inside
        assert current_handle() == inside
    buffer.release()


def test_forced_limits_are_never_looser_than_the_context(game: moderngl.Context) -> None:
    wanted = minimum(330)
    with GLDevice(game, limits=wanted) as device:
        assert device.limits.max_texture_size == 1024
        assert device.limits.max_texture_image_units == 16
        assert device.limits.max_compute_storage_blocks == 0
    with GLDevice(game, limits=minimum(430)) as device:
        if device.info.supports_compute:
            assert device.limits.storage_buffer_offset_alignment == 256
    with GLDevice(game) as device:
        own = device.limits
    huge = dataclasses.replace(own, max_texture_size=1 << 30)
    with GLDevice(game, limits=huge) as device:
        assert device.limits == own


def test_the_context_fulfils_the_minimum_of_its_version(gl_device: GLDevice) -> None:
    least = minimum(gl_device.info.version_code)
    assert least.restricted_to(gl_device.limits) == least


def test_limits_agree_with_what_moderngl_reads(gl_device: GLDevice) -> None:
    with gl_device.current():
        info = gl_device.ctx.info
    limits = gl_device.limits
    assert limits.max_texture_size == info["GL_MAX_TEXTURE_SIZE"]
    assert limits.max_texture_image_units == info["GL_MAX_TEXTURE_IMAGE_UNITS"]
    assert limits.max_fragment_uniform_components == info["GL_MAX_FRAGMENT_UNIFORM_COMPONENTS"]
    if gl_device.info.supports_compute:
        assert limits.max_compute_group_count == tuple(info["GL_MAX_COMPUTE_WORK_GROUP_COUNT"])
        assert limits.max_compute_storage_blocks == info["GL_MAX_COMPUTE_SHADER_STORAGE_BLOCKS"]


def test_every_entry_point_of_the_table_binds(gl_device: GLDevice) -> None:
    with gl_device.current():
        for name in SIGNATURES:
            assert callable(getattr(gl_device.gl, name)), name
            assert gl_device.gl.address(name) != 0
    with pytest.raises(AttributeError, match="glNoSuchThing"):
        gl_device.gl.glNoSuchThing  # noqa: B018 - the access is what is tested


def test_a_lost_address_is_an_error_of_ours() -> None:
    class Empty:
        def load_opengl_function(self, name: str) -> int:
            return 0

    with pytest.raises(DeviceError, match="glFlush"):
        GLFunctions(Empty()).glFlush()


def test_a_context_of_another_thread_compiles_for_the_device(gl_device: GLDevice) -> None:
    shared = gl_device.create_shared()
    made: list[int] = []

    def compile_there() -> None:
        with shared.current():
            made.append(shared.gl.glCreateProgram())

    thread = threading.Thread(target=compile_there)
    thread.start()
    thread.join()
    with pytest.raises(DeviceError, match="thread"), shared.current():
        pass
    with gl_device.current():
        assert gl_device.gl.glIsProgram(made[0])
        gl_device.gl.glDeleteProgram(made[0])
    shared.dispose()
    with pytest.raises(DisposedError), shared.current():
        pass


def test_a_shared_context_is_created_on_another_thread(game: moderngl.Context) -> None:
    with GLDevice(game) as device:
        make = device.shared_maker()
        if make is None:
            pytest.skip("this platform creates contexts on the device's thread only")
        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        assert device.shared_maker() is None
        shared = device.borrow_shared()
        assert device.shared_maker() is not None
        with shared.current():
            made = shared.gl.glCreateProgram()
        with device.current():
            assert device.gl.glIsProgram(made)
            device.gl.glDeleteProgram(made)
        device.give_back_shared(shared)


CHILD_3_3 = """
import moderngl, numpy as np
from engine.device.gl.device import GLDevice
from engine.device.gl.functions import GL
ctx = moderngl.create_standalone_context(backend="egl")
with GLDevice(ctx) as device:
    assert ctx.version_code == device.info.version_code == device.ctx.version_code == 330, device.info
    assert not device.info.supports_compute
    assert device.limits.max_compute_storage_blocks == 0
    values = np.arange(64, dtype=np.float32)
    buffer = ctx.buffer(values.tobytes())
    readback = device.staging.read_buffer(buffer.glo, buffer.size, np.float32)
    readback.wait()
    assert np.array_equal(readback.array(), values)
    device.staging.write_buffer(buffer.glo, 2 * values)
    readback = device.staging.read_buffer(buffer.glo, buffer.size, np.float32)
    readback.wait()
    assert np.array_equal(readback.array(), 2 * values)
    device.check_errors("using OpenGL 3.3")
with GLDevice.for_context() as device:
    assert device.info.version_code == 330
assert ctx.error == "GL_NO_ERROR", ctx.error
print("done")
"""


def test_a_machine_held_to_opengl_3_3(run_child, held_to_3_3) -> None:
    assert "done" in run_child(CHILD_3_3, **held_to_3_3)


CHILD_UNUSUAL_GAME = """
import moderngl
from engine.device.gl.device import GLDevice
from engine.device.gl import egl as gl_egl

extra = {
    "robust": (gl_egl._ROBUST_ACCESS, 1, gl_egl._RESET_STRATEGY, gl_egl._LOSE_CONTEXT_ON_RESET),
    "unchecked": (gl_egl._NO_ERROR, 1),
}["KIND"]
attributes = gl_egl._attributes
gl_egl._attributes = lambda *values: attributes(
    *values, *(extra if values[0] == gl_egl._CONTEXT_MAJOR else ())
)
egl = gl_egl.EGL.load()
game = egl.create_headless()
egl.make_current(game.binding)
gl_egl._attributes = attributes
device = GLDevice.for_context()
assert device.shares_with_game and device.is_shared_with_current()
assert GLDevice.for_context() is device
assert egl.current_context() == game.handle
assert GLDevice.for_context(moderngl.create_context()) is device
print("shared")
"""


@pytest.mark.parametrize("kind", ["robust", "unchecked"])
def test_a_game_context_of_an_unusual_kind_is_shared_with(run_child, kind: str) -> None:
    """Sharing fails unless both contexts agree on these, and the first attempts do not."""
    assert "shared" in run_child(CHILD_UNUSUAL_GAME.replace("KIND", kind))


def test_a_device_that_is_dropped_goes_at_once(game: moderngl.Context) -> None:
    """Left to the garbage collector it might be destroyed on another thread."""
    device = GLDevice(game)
    with device.current():
        buffer = device.ctx.buffer(reserve=16)
        readback = device.staging.read_buffer(buffer.glo, 16, np.float32)
    readback.wait()
    readback.array()
    watch = weakref.ref(device)
    gc.disable()
    try:
        del buffer, readback, device
        assert watch() is None
    finally:
        gc.enable()


CHILD_TOO_OLD = """
import moderngl
from engine.device.gl.device import GLDevice
from engine.base.errors import DeviceError
try:
    GLDevice()
except DeviceError as error:
    print(error)
"""


def test_a_machine_with_too_old_an_opengl_says_so(run_child, held_to_3_3: dict[str, str]) -> None:
    older = dict(zip(held_to_3_3, ("3.1", "140"), strict=True))
    answer = run_child(CHILD_TOO_OLD, DISPLAY="", **older)
    assert "3.3" in answer
    assert "driver" in answer


ENDING = """
import atexit
seen, kinds = [], ("Buffers", "Textures", "Framebuffers", "Sync")
atexit.register(lambda: print(*(seen[0].alive[kind] for kind in kinds)))
import moderngl
import numpy as np
from engine import BackendType, ModelLoader, Worker
from engine.device.gl.device import GLDevice
from tests.benchmarks.holdings import ObjectLoader
def wrapper(loader):
    seen.append(ObjectLoader(loader))
    return seen[0]
game = moderngl.create_standalone_context(backend="egl")
device = GLDevice(game, loader_wrapper=wrapper)
workers = []
for kind in (BackendType.GPU_PIXEL, BackendType.GPU_COMPUTE):
    if kind is BackendType.GPU_COMPUTE and device.info.version_code < 430:
        continue
    worker = Worker(ModelLoader.load("assets/digits/digits.onnx"), kind, device=device)
    worker.schedule(np.ones((1, 1, 28, 28), np.float32))
    worker.peek_output().readback_request()
    workers.append(worker)
print(seen[0].alive.total() > 20)
"""


def test_nothing_is_left_in_a_context_when_the_process_ends(run_child: RunChild) -> None:
    """Apart from a buffer that stays with the compiled programs."""
    assert run_child(ENDING).split() in (["True", *"0000"], ["True", *"1000"])
