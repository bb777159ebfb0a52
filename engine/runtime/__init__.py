"""Runs models: plans, compiled segments, submission, pending work, readback and background loading."""
