"""Properties of the device for tuned kernels."""

from __future__ import annotations

from dataclasses import dataclass

from engine.device.gl.limits import GLLimits


@dataclass(frozen=True, slots=True)
class Target:
    """limits: of the device. texels: tensors are read as buffer textures."""

    limits: GLLimits
    texels: bool
