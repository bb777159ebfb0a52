"""Asynchronous readback of tensor data to the CPU."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from math import prod
from typing import Protocol

import numpy as np

from engine.base.errors import InputError


class PendingRead(Protocol):
    """A pending readback of elements to the CPU."""

    def done(self) -> bool:
        """Whether `array` is there. Never waits."""
        ...

    def wait(self) -> None:
        """Block until done."""
        ...

    def array(self) -> np.ndarray:
        """The elements in their shape, after `done` or `wait`."""
        ...


def delivered(array: np.ndarray, out: np.ndarray | None) -> np.ndarray:
    """An array owned by the caller, or copied into `out`. Raises `InputError` if `out` does not fit."""
    if out is None:
        return array
    check_out(out, array.shape, array.dtype)
    np.copyto(out, array)
    return out


def check_out(out: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Raise `InputError` unless a tensor can be written into `out`."""
    if out.shape != shape or out.dtype != dtype:
        raise InputError(
            f"out has shape {out.shape} and dtype {out.dtype}; the tensor has {tuple(shape)} and {dtype}"
        )


class ArrivedRead(PendingRead):
    """A completed readback."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def done(self) -> bool:
        return True

    def wait(self) -> None:
        return

    def array(self) -> np.ndarray:
        return self._array


class Readback(ABC):
    """A pending readback of a buffer's value."""

    @abstractmethod
    def done(self) -> bool:
        """Whether `array` is available at once. Never waits."""

    @abstractmethod
    def array(self) -> np.ndarray:
        """The value, 1-D, in the buffer's dtype. Only after `done` (or `wait`)."""

    def seen(self) -> np.ndarray | None:
        """A 1-D view of the value in the memory where it was computed; None once it was copied or is gone.

        Only after `done` (or `wait`); valid until the stream continues.
        """
        return None

    def into(self, out: np.ndarray) -> None:
        """Write the value's first elements into an array of the buffer's dtype. Instead of `array`, once."""
        np.copyto(out, self.array()[: out.size].reshape(out.shape))

    @abstractmethod
    def wait(self) -> None:
        """Block until done (the only blocking call of a backend)."""


class ShapedRead:
    """A backend's read of a buffer, seen in a tensor's shape."""

    def __init__(self, read: Readback, shape: tuple[int, ...]) -> None:
        self.done = read.done
        self.wait = read.wait
        self._read = read
        self._shape = shape

    def array(self) -> np.ndarray:
        """The elements in their shape."""
        return self._read.array()[: prod(self._shape)].reshape(self._shape)

    def seen(self) -> np.ndarray | None:
        """A view of the elements where they were computed, to be copied immediately; None if moved."""
        flat = self._read.seen()
        return None if flat is None else flat[: prod(self._shape)].reshape(self._shape)


class DerivedRead(PendingRead):
    """A readback derived from others: `make` receives their arrays."""

    def __init__(self, make: Callable[..., np.ndarray], *reads: PendingRead) -> None:
        self._make = make
        self._reads = reads

    def done(self) -> bool:
        return all(read.done() for read in self._reads)

    def wait(self) -> None:
        for read in self._reads:
            read.wait()

    def array(self) -> np.ndarray:
        return self._make(*[read.array() for read in self._reads])


class Reader(Protocol):
    """Work that reads a tensor's memory without a copy."""

    @property
    def is_completed(self) -> bool:
        """Whether it is done; never waits."""
        ...

    def complete(self) -> bool:
        """Block until it is done."""
        ...


class Writer(Reader, Protocol):
    """A job that writes a tensor's elements in place."""

    def then_copy(self, source: np.ndarray, target: np.ndarray) -> Reader:
        """Work that copies an array into another once this is done."""
        ...


class CopiedRead(PendingRead):
    """A read by a job that copies."""

    def __init__(self, copying: Reader, target: np.ndarray) -> None:
        self._copying = copying
        self._target = target

    def done(self) -> bool:
        return self._copying.is_completed

    def wait(self) -> None:
        self._copying.complete()

    def array(self) -> np.ndarray:
        return self._target
