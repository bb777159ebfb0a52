"""Convolutions and pools on the CPU."""
