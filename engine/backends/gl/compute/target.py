"""Device properties that tuned shaders depend on."""

from __future__ import annotations

from dataclasses import dataclass

from engine.device.gl.limits import GLLimits


@dataclass(frozen=True, slots=True)
class ShaderTarget:
    """What shaders are printed for.

    limits: of the device. texels: tensors are read as buffer textures.
    """

    limits: GLLimits
    texels: bool
