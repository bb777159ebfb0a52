"""How kernels are written in OpenCL C: printers, storage of elements, the common part of tuned kernels."""
