"""The inspector: an overlay that shows and edits the objects of a running game."""

from gameglue.inspector.inspector import Inspector

__all__ = ["Inspector"]
