"""Which steps run on tuned kernels here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.backends.gl_compute.conv import tune_conv
from engine.backends.gl_compute.target import Target
from engine.compiler.plan import Compute, Tuner
from engine.kernels.value import Value

TUNERS: Mapping[str, Callable[[Compute, Tuner, Target], bool]] = {"conv": tune_conv}
"""By the kind of a step's hint: the rule that emits tuned kernels, or returns False."""


def slices_constant(compute: Compute, value: Value, target: Target) -> bool:
    """Whether a tuned kernel reads this operand in slices, so that its size is no obstacle."""
    return False
