"""Plans on GLSL fragment shaders: OpenGL 3.3 and later."""
