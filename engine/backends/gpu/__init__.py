"""What GPU backends share: rules and kernels in a common form of GLSL and OpenCL C, and 32-bit integers."""
