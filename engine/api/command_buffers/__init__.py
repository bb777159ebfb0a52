"""Command buffers: commands recorded once and executed together."""
