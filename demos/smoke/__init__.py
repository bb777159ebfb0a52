"""Stir smoke whose pressure a network finds."""
