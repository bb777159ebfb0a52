"""Backends: print kernels, own memory, run command lists and read results back."""
