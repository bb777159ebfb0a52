"""What the two OpenGL backends share: GLSL, command lists, programs, and the stream they run in."""
