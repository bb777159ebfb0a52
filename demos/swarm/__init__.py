"""Thousands of fish, steered by one network in one batch each frame."""
