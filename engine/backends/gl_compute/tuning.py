"""Which steps run on tuned kernels here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.backends.gl_compute.conv import tune_conv
from engine.backends.gl_compute.matmul import tune_matmul
from engine.backends.gl_compute.target import Target
from engine.compiler.plan import Compute, Tuner

TUNERS: Mapping[str, Callable[[Compute, Tuner, Target], bool]] = {"conv": tune_conv, "matmul": tune_matmul}
"""By the kind of a step's hint: the rule that emits tuned kernels, or returns False."""
