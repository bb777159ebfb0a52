"""Backend selection: the choices by name, the default for this machine, and workers on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine import BackendType, GLDevice, Model, SystemInfo, Worker
from engine.backends.base import Precision
from engine.backends.table import BACKENDS, DeviceName
from engine.base.errors import EngineError

BACKEND_NAMES = ("cpu", "gpu_compute", "gpu_pixel")

ProgressCallback = Callable[[int, int], None]
"""Called with (kernels ready, kernels wanted)."""


@dataclass(frozen=True)
class BackendChoice:
    """Where a model runs: a backend, its device, and the CPU's precision.

    Attributes:
        backend: The backend.
        device: For GPU_COMPUTE, "gl" or "opencl"; None takes OpenGL if it has compute shaders.
        precision: For CPU, "float32", or a low precision that is faster.
    """

    backend: BackendType
    device: DeviceName | None = None
    precision: Precision = "float32"

    @property
    def label(self) -> str:
        """As the command line writes it: "cpu", "cpu (bf16)", "gpu_compute", "gpu_compute (opencl)"."""
        detail = self.device if self.precision == "float32" else self.precision
        return self.backend.value + (f" ({detail})" if detail is not None else "")


BACKEND_CHOICES = tuple(
    BackendChoice(entry.backend_type, entry.device if entry.backend_type is BackendType.GPU_COMPUTE else None)
    for entry in BACKENDS
)
"""Every way to run a model."""


def matching_choices(wanted: BackendChoice | None) -> list[BackendChoice]:
    """The ways to run a model that fit a request: all if None, and each device if it names none."""
    return [
        choice
        for choice in BACKEND_CHOICES
        if wanted is None or choice.backend is wanted.backend and wanted.device in (None, choice.device)
    ]


def default_backend_choice(has_opengl: bool) -> tuple[BackendChoice, str]:
    """The backend that suits a game on this thread's OpenGL context, and the reason in a few words.

    A software renderer computes on the same cores as the CPU backend, only slower, so there the CPU is taken.
    """
    if not has_opengl:
        return BackendChoice(BackendType.CPU), "there is no OpenGL here"
    try:
        info = GLDevice.for_context().info
    except EngineError as error:
        return BackendChoice(BackendType.CPU), str(error)
    if info.is_software:
        return BackendChoice(BackendType.CPU), f"OpenGL is drawn by the processor here ({info.renderer})"
    if info.supports_compute:
        return BackendChoice(BackendType.GPU_COMPUTE, "gl"), f"compute shaders on {info.renderer}"
    return BackendChoice(BackendType.GPU_PIXEL), f"{info.renderer} has no compute shaders"


def open_worker(model: Model, choice: BackendChoice, progress: ProgressCallback | None = None) -> Worker:
    """A worker on this thread's OpenGL context, or on the device that the choice names.

    Args:
        model: The model.
        choice: Backend, device and precision.
        progress: Called while kernels compile, with how many are ready and how many there are.

    Raises:
        EngineError: The device is not available, or the model cannot run on it.
    """
    return Worker(model, choice.backend, device=choice.device, precision=choice.precision, progress=progress)


def resolve_backend_choice(choice: BackendChoice, worker: Worker) -> BackendChoice:
    """Replace the device of `choice` by the one that `worker` uses: one of `BACKEND_CHOICES`."""
    if choice.backend is not BackendType.GPU_COMPUTE:
        return choice
    return BackendChoice(choice.backend, getattr(worker.device, "name", choice.device))


def why_unavailable(choice: BackendChoice, info: SystemInfo) -> str | None:
    """Why a backend is not available on this machine, or `None`."""
    if choice.backend is BackendType.CPU:
        return None
    if choice.device == "opencl":
        return None if info.cl_devices else (info.cl_reason or "there is no OpenCL device")
    if choice.device not in (None, "gl"):
        return None
    reason = info.gl_pixel_reason if choice.backend is BackendType.GPU_PIXEL else info.gl_compute_reason
    return reason or None
