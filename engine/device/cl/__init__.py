"""OpenCL devices: runtimes, queues and stored program binaries."""
