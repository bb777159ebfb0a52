"""Tuned kernels of the CPU."""
