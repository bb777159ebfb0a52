"""The plan store: imported graphs and plans of models on disk.

GAMEGLUE_STORED_PLANS=off in the environment for neither reading nor writing any.
"""

from __future__ import annotations

import os


def is_storing() -> bool:
    """Whether the environment lets anything be stored."""
    return os.environ.get("GAMEGLUE_STORED_PLANS", "on") != "off"
