"""The inspector: an overlay that shows what is in a running game, and changes it."""

from gameglue.inspector.inspector import Inspector

__all__ = ["Inspector"]
