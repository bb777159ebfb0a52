"""Recorded plans on OpenCL: programs, memory, dispatches."""
