"""A duel against a network that learns from you while you play."""
