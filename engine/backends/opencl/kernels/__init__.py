"""Tuned kernels in OpenCL C, and the rules that choose them."""
