"""OpenGL devices: contexts, fences, staging buffers, timer queries and limits."""
