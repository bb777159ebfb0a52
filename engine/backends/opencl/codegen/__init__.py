"""OpenCL C code generation: printers, storage of elements, shared parts of tuned kernels."""
