"""`WorkerMemory`: the memory of a worker by purpose and location, returned by `Worker.memory`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.backends.base import Backend, DeviceBuffer
from engine.compiler.lower import Place
from engine.runtime.plans.recorded_plan import RecordedPlan
from engine.runtime.plans.session import Session


@dataclass(frozen=True, slots=True)
class WorkerMemory:
    """Bytes that a worker holds, on the host and on its device.

    The CPU backend may read weights where the model has them; its temporaries are one block, which all plans
    share.

    Attributes:
        host_weights: Constants in the host's memory, packed ones included, in bytes.
        host_temporaries: Values between layers in the host's memory, in bytes.
        host_tensors: Inputs and outputs in the host's memory, in bytes.
        device_weights: Constants on the device, in bytes.
        device_temporaries: Values between layers on the device, in bytes.
        device_tensors: Inputs and outputs on the device, in bytes.
        plans: How many plans the worker holds, one for each set of input sizes.
    """

    host_weights: int = 0
    host_temporaries: int = 0
    host_tensors: int = 0
    device_weights: int = 0
    device_temporaries: int = 0
    device_tensors: int = 0
    plans: int = 0

    @property
    def host(self) -> int:
        """Bytes in the processor's memory."""
        return self.host_weights + self.host_temporaries + self.host_tensors

    @property
    def device(self) -> int:
        """Bytes in the memory of a GPU or OpenCL device."""
        return self.device_weights + self.device_temporaries + self.device_tensors

    @property
    def total(self) -> int:
        """Total bytes."""
        return self.host + self.device

    def __str__(self) -> str:
        parts = []
        for place, whole in (("host", self.host), ("device", self.device)):
            if whole:
                kinds = [(k, getattr(self, f"{place}_{k}")) for k in ("weights", "temporaries", "tensors")]
                listed = ", ".join(f"{kind} {megabytes(n)}" for kind, n in kinds if n)
                parts.append(f"{place} {megabytes(whole)} ({listed})")
        return "; ".join(parts) or "nothing"


def megabytes(nbytes: int) -> str:
    """Format bytes as megabytes."""
    return f"{nbytes / 1e6:.1f} MB" if nbytes >= 100_000 else f"{nbytes / 1e3:.1f} KB"


def memory_of(session: Session) -> WorkerMemory:
    """The memory that a session holds now."""
    sums = dict.fromkeys(WorkerMemory.__dataclass_fields__, 0)
    recorded_plans = [*session.cache.plans.values(), *session.cache.continuations]
    sums["plans"] = len(recorded_plans)
    for place, backend in session.backends.items():
        side = "host" if backend.is_host else "device"
        constants = {id(b): b for (at, _), (_, b) in session.recorder.constants.items() if at == place}
        sums[f"{side}_weights"] += _bytes_of(constants.values())
        sums[f"{side}_tensors"] += _bytes_of(_tensors(session, place, backend, recorded_plans, constants))
        temporaries = {id(t.memory): t.held_bytes() for t in backend.shared_temporaries()}
        for recorded in recorded_plans:
            for submission in recorded.submissions:
                if submission.place == place:
                    temporaries.update(submission.program.temporaries())
        sums[f"{side}_temporaries"] += sum(temporaries.values())
    return WorkerMemory(**sums)


def _tensors(
    session: Session,
    place: Place,
    backend: Backend,
    recorded_plans: Iterable[RecordedPlan],
    constants: dict[int, DeviceBuffer],
) -> list[DeviceBuffer]:
    """The buffers of inputs and outputs at a place; those of plans that share memory are counted once."""
    if backend.shares:
        shared = session.recorder.shared_buffers
        return [held.memory for (at, *_), held in shared.items() if at == place and held.memory is not None]
    found = {
        id(b): b for recorded in recorded_plans for (at, _), b in recorded.buffers.items() if at == place
    }
    return [buffer for key, buffer in found.items() if key not in constants]


def _bytes_of(buffers: Iterable[DeviceBuffer]) -> int:
    return sum(buffer.memory_bytes() for buffer in buffers)
