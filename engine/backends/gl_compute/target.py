"""What tuned kernels need to know of the device."""

from __future__ import annotations

from dataclasses import dataclass

from engine.devices import GLLimits


@dataclass(frozen=True, slots=True)
class Target:
    """limits: of the device. is_software: the CPU runs the shaders. texels: tensors are buffer textures."""

    limits: GLLimits
    is_software: bool
    texels: bool
