"""Recorded plans on the CPU: from steps to jobs."""
