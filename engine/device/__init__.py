"""Devices and the machine: OpenGL contexts, OpenCL queues, native code, job threads."""
