"""Draw a digit with the mouse while a network reads it every frame."""
