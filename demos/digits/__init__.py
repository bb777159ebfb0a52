"""Draw a digit with the mouse while a network classifies it in every frame."""
