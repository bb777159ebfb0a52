"""A game drawn with a quarter of its pixels and upscaled by a network."""
