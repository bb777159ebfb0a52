"""What loading has worked out for a model, on disk: graphs as they were read, and plans.

GAMEGLUE_STORED_PLANS=off in the environment for neither reading nor writing any.
"""

from __future__ import annotations

import os


def is_storing() -> bool:
    """Whether the environment lets anything be stored."""
    return os.environ.get("GAMEGLUE_STORED_PLANS", "on") != "off"
