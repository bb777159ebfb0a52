"""Matrix products on the CPU."""
