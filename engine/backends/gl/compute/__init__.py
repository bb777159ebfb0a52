"""Plans on GLSL compute shaders: OpenGL 4.3 and later."""
