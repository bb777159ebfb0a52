"""The CPU backend: generic kernels printed as numba Python and tuned kernels, run by native jobs."""
