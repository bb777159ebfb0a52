"""A game drawn with a quarter of its pixels, which a network makes whole again."""
