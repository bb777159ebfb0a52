"""The common part of the OpenGL backends: GLSL, command lists, programs, and their stream."""
