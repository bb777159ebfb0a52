"""The OpenGL drivers that the suites run under: what chooses each, and which tests it is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

OPENGL = "(gl_compute or gl_pixel or gl or texture) and not opencl"
"""Chooses, within files, the tests that use OpenGL, as `pytest -k` reads it."""


@dataclass(frozen=True, eq=False)
class Driver:
    """An OpenGL driver, or a way to run one.

    environment: what chooses it in a child process. renderer: what its name (`GL_RENDERER`) begins with.
    package: what to install where it is missing. chosen: `pytest -k`, within the files. sample: the files of
    the quick sample; files: those of the whole suite besides. left_out: tests that cannot pass, with the
    reason. backends: those on which demos are played.
    """

    name: str
    environment: Mapping[str, str]
    renderer: str
    package: str
    sample: tuple[str, ...]
    files: tuple[str, ...] = ()
    chosen: str = OPENGL
    left_out: Mapping[str, str] = field(default_factory=dict)
    backends: tuple[str, ...] = ("gpu_compute", "gpu_pixel")


_DEVICES = (
    "tests/engine/device/gl/test_counting.py",
    "tests/engine/device/gl/test_device.py",
    "tests/engine/device/gl/test_hosts.py",
    "tests/engine/device/gl/test_state.py",
    "tests/engine/device/gl/test_timer_queries.py",
    "tests/engine/device/gl/test_staging.py",
    "tests/engine/device/gl/test_window.py",
)
_BACKENDS = (
    "tests/engine/backends/gl",
    "tests/engine/backends/gl/compute",
    "tests/engine/backends/gl/pixel",
    "tests/engine/backends/test_narrow.py",
    "tests/engine/backends/test_tuned.py",
    "tests/engine/runtime/test_device_tensor_data.py",
)
_ENGINE = (
    "tests/engine/api/command_buffers/test_buffer.py",
    "tests/engine/runtime/loading/test_workers.py",
    "tests/engine/test_bounded_sizes.py",
    "tests/engine/runtime/plans/test_continuations.py",
    "tests/engine/test_deterministic.py",
    "tests/engine/test_exported_networks.py",
    "tests/engine/test_limits.py",
    "tests/engine/test_models.py",
    "tests/engine/runtime/test_fast_path.py",
    "tests/engine/runtime/plans/test_new_shapes.py",
    "tests/engine/runtime/plans/test_symbolic_plans.py",
    "tests/engine/runtime/plans/test_dynamic_dims.py",
    "tests/engine/base/test_instrumentation.py",
    "tests/engine/test_random_control_flow.py",
    "tests/engine/test_random_graphs.py",
    "tests/engine/runtime/test_slice_cuts.py",
    "tests/engine/runtime/test_sliced_schedule.py",
    "tests/engine/runtime/test_steady_state.py",
    "tests/engine/runtime/test_streams.py",
    "tests/engine/api/test_worker.py",
    "tests/engine/api/textures",
)
_OPERATORS = (
    "tests/engine/operators",
    "tests/engine/kernels/test_semantics.py",
    "tests/engine/kernels/test_semantics_of_loops.py",
)
_GAMES = (
    "tests/gameglue/cli/test_diff.py",
    "tests/gameglue/cli/test_profile.py",
    "tests/gameglue/graphics",
    "tests/gameglue/inference",
    "tests/gameglue/profiling",
    "tests/gameglue/graphics/test_graphics.py",
    "tests/gameglue/host/test_headless.py",
    "tests/gameglue/graphics/test_layers.py",
    "tests/gameglue/test_with_engine.py",
)
_CONTRACT = ("tests/contract",)

_TIMED = "it measures, and this driver of 2022 takes a fence right behind a flush for passed"

ZINK = Driver(
    "zink",
    {
        "GALLIUM_DRIVER": "zink",
        "MESA_LOADER_DRIVER_OVERRIDE": "zink",
        "LIBGL_ALWAYS_SOFTWARE": "1",
        # Mesa 22.3: it miscompiles uniforms that it writes into shaders, and reorders copies on its thread.
        "ZINK_INLINE_UNIFORMS": "0",
        "GALLIUM_THREAD": "0",
    },
    "zink",
    "mesa-vulkan-drivers",
    sample=("tests/engine/device/gl/test_device.py", "tests/engine/backends/gl/test_stream.py"),
    files=_DEVICES + _BACKENDS + _ENGINE + _OPERATORS + _GAMES + _CONTRACT,
    left_out={
        "test_tuned_kernels_are_much_faster": _TIMED,
        "test_a_snapshot_is_read_while_later_work_runs": _TIMED,
        "test_each_phase_that_draws_has_a_time_in_order": _TIMED,
    },
)
"""Mesa's OpenGL over Vulkan, here over its Vulkan on the processor: OpenGL 4.6, truly asynchronous."""

SOFTPIPE = Driver(
    "softpipe",
    {"GALLIUM_DRIVER": "softpipe", "LIBGL_ALWAYS_SOFTWARE": "1"},
    "softpipe",
    "libgl1-mesa-dri",
    sample=("tests/engine/backends/gl/pixel/test_layout.py",),
    files=(
        "tests/engine/backends/gl/test_stream.py",
        "tests/engine/backends/gl/pixel/test_backend.py",
        "tests/engine/backends/gl/pixel/test_tuned.py",
        "tests/engine/backends/test_tuned.py",
        "tests/engine/operators/test_casting.py",
        "tests/engine/operators/test_convolution.py",
        "tests/engine/operators/test_control_flow.py",
        "tests/engine/test_limits.py",
        "tests/engine/runtime/test_fast_path.py",
        "tests/engine/runtime/plans/test_symbolic_plans.py",
        "tests/engine/runtime/plans/test_dynamic_dims.py",
        "tests/engine/runtime/test_slice_cuts.py",
        "tests/engine/runtime/test_sliced_schedule.py",
        "tests/engine/api/test_worker.py",
        "tests/engine/api/textures/test_to_texture.py",
    ),
    chosen="pixel and not opencl",
    backends=("gpu_pixel",),
)
"""Mesa's reference renderer: OpenGL 3.3, one thread, some thousand times slower than llvmpipe."""

AS_GRAPHICS_CARD = Driver(
    "as a graphics card",
    {"GAMEGLUE_GL_AS_GRAPHICS_CARD": "1", "LIBGL_ALWAYS_SOFTWARE": "1"},
    "llvmpipe",
    "libgl1-mesa-dri",
    sample=("tests/engine/backends/gl/compute/test_backend.py",),
    files=(*_BACKENDS, *_ENGINE, *_GAMES, "tests/contract/test_no_blocking_calls.py"),
    left_out={
        "test_picture_network": "it tests how far a network lags where the processor draws",
        "test_a_game_that_waits_for_its_answer": "this renderer has drawn by the time that a read is issued",
        "test_a_run_without_a_display_leaves": "this renderer is too slow for an answer within its 40 frames",
    },
)
"""llvmpipe taken for a graphics card: storage buffers, timestamps and immediate transfers."""

WITH_THREADS = Driver(
    "with threads",
    {"LP_NUM_THREADS": "2", "LIBGL_ALWAYS_SOFTWARE": "1"},
    "llvmpipe",
    "libgl1-mesa-dri",
    sample=("tests/engine/device/gl/test_staging.py", "tests/gameglue/host/test_headless.py"),
    files=(*_DEVICES, *_BACKENDS, *_GAMES),
)
"""llvmpipe on threads of its own, as games get it: done later than a call returns."""

DRIVERS = (ZINK, SOFTPIPE, AS_GRAPHICS_CARD, WITH_THREADS)
