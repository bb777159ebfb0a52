"""Stir smoke whose pressure a network computes."""
