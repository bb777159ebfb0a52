"""The OpenCL backend: kernels as OpenCL C, one in-order queue, tuned matrix products and convolutions."""

from __future__ import annotations

from engine.backends.opencl.backend import OpenCLBackend

__all__ = ["OpenCLBackend"]
