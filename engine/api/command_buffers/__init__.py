"""Commands of a frame, collected once and executed together."""
