"""A moving scene in three dimensions, painted by a network."""
