"""Awaitables that work with and without asyncio, which this module does not import."""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import Any


def in_asyncio() -> bool:
    """Whether the caller runs in an asyncio event loop."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def suspend(seconds: float) -> Generator[Any, None, None]:
    """Suspend an awaitable for `seconds` under asyncio, else until the next frame."""
    if in_asyncio():
        yield from sys.modules["asyncio"].sleep(seconds).__await__()
    else:
        yield None
