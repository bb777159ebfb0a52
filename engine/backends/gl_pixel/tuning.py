"""Which steps run on tuned kernels here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.compiler.plan import Compute, Tuner
from engine.devices import GLLimits

TUNERS: Mapping[str, Callable[[Compute, Tuner, GLLimits], bool]] = {}
"""By the kind of a step's hint: the rule that emits tuned kernels, or returns False."""
