"""Command lists in native memory, which jobs run."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from engine.base.errors import InputError
from engine.base.memory.aligned import address_of
from engine.device.jobs.layout import OP_RUN

REQUEST_WORDS = 4
"""Words of the request that runs a list."""


class CommandList:
    """Commands in native memory: int64 (n, 4) rows of (function, args, total, grain).

    It may be submitted any number of times, also while it is running; it must not change meanwhile.
    `keep_alive` is held as long as the list is: what the args point to. A plain array works wherever a
    `CommandList` does, and is checked at every call.
    Raises `InputError` for rows that cannot run.
    """

    __slots__ = ("_begin", "_request", "_rows", "address", "count", "keep_alive", "run_request")

    def __init__(
        self, rows: np.ndarray | Sequence[tuple[int, int, int, int]], keep_alive: object = None
    ) -> None:
        array = np.ascontiguousarray(rows, dtype=np.int64).reshape(-1, 4)
        if array.size and (array[:, 0].min() <= 0 or array[:, 3].min() < 1):
            raise InputError("a command needs a function address and a grain of at least 1")
        rows = array if array.size else _EMPTY
        self._rows: np.ndarray | None = rows
        self._begin, self.count = 0, len(rows)
        self.address = address_of(rows)
        self.keep_alive = keep_alive
        self._request = np.array([OP_RUN, self.address, self.count, 0], np.int64)
        self.run_request = ctypes.c_int64(address_of(self._request))

    @classmethod
    def within(
        cls, block: np.ndarray, address: int, begin: int, count: int, request: int, keep_alive: object
    ) -> CommandList:
        """The commands in a block of words, which are not checked.

        Args:
            block: The block, 1-D int64.
            address: Its address.
            begin: Where the commands begin in it, in words.
            count: How many there are.
            request: Where the `REQUEST_WORDS` words are of what runs them, written before.
            keep_alive: As for the constructor; it holds the block.
        """
        if not count:
            return cls(NO_ROWS, keep_alive)
        made = cls.__new__(cls)
        made._rows, made._begin, made.count = None, begin, count
        made.address, made.keep_alive, made._request = address + 8 * begin, keep_alive, block
        made.run_request = ctypes.c_int64(address + 8 * request)
        return made

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to run; such a list is never `within` a block."""
        return self._rows is _EMPTY

    def become(self, rows: np.ndarray) -> None:
        """Take the commands, at least one, that have been written in place of those before.

        For those `within` a block, of which what runs them is a part, setting `count` does.
        """
        self._rows, self.count = rows, len(rows)
        self._request[2] = len(rows)

    @property
    def array(self) -> np.ndarray:
        """The rows."""
        if self._rows is None or len(self._rows) != self.count:
            self._rows = self._request[self._begin : self._begin + 4 * self.count].reshape(-1, 4)
        return self._rows

    @classmethod
    def single(
        cls, function: int, words: Sequence[int], total: int, grain: int, keep_alive: object
    ) -> CommandList:
        """A list of one command with these argument words, which are not checked."""
        made = cls.__new__(cls)
        block = np.array([function, 0, total, grain, OP_RUN, 0, 1, 0, *words], np.int64)
        address = block.__array_interface__["data"][0]
        block[1], block[5] = address + 64, address
        made._rows, made.count, made.address = block[:4].reshape(1, 4), 1, address
        made.keep_alive = keep_alive
        made._request = block
        made.run_request = ctypes.c_int64(address + 32)
        return made

    def change(self, words: Sequence[int], total: int) -> None:
        """Set the argument words and the range of a `single` command, which no job must be using."""
        self._request[8:], self._request[2] = words, total


# A job of no commands still has to come round to its dependents: one command over an empty range.
_EMPTY = np.array([[0, 0, 0, 1]], np.int64)
NO_ROWS = np.zeros((0, 4), np.int64)
NOTHING = CommandList(NO_ROWS)
