"""Shared parts of the GPU backends: rules, kernels common to GLSL and OpenCL C, 32-bit integers."""
