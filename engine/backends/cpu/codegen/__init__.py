"""How kernels of the CPU are written: their text, arguments, tiles and division into tasks."""
