"""The atomic step of a scatter."""

from __future__ import annotations

from engine.backends.opencl.tuned import TunedKernel, build
from engine.backends.scatters import Raises
from engine.compiler.plan import Tuner

_GROUP = 64
_NUMBERS = ("total", "count", "columns", "places")


def raise_all(tuner: Tuner, raises: Raises, targets: str, table: str) -> bool:
    """Emit the step: a work-item for each target."""
    values = (raises.total, raises.count, raises.columns, raises.places)
    tuner.emit(_kernel(), (-(-raises.total // _GROUP), 1, 1), values, (targets,), table)
    return True


def _kernel() -> TunedKernel:
    body = f"""\
    const int t = (f0 + (int)get_group_id(0)) * {_GROUP} + (int)get_local_id(0);
    if (t >= total) return;
    const int place = targets[t], line = t / columns, row = line / count;
    if (place >= 0 && place < places)
        atomic_max(y + (row * places + place) * columns + t - line * columns, line - row * count);
"""
    return build(body, None, ("targets:int32",), _NUMBERS, (_GROUP, 1, 1), output="int32", area=_GROUP)
