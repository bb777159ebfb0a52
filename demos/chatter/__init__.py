"""Walk through a village where everybody talks."""
