"""Scenes: objects, transforms, and the files that hold them."""
