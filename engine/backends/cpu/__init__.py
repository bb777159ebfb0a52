"""The CPU backend: kernels printed as numba Python, tuned ones for what costs most, run by native jobs."""
