"""Host memory: aligned for native kernels, in large pages, or pageable by the system."""
