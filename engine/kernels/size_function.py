"""Functions of plain numbers that plans call again at each new size: as Python, and compiled.

The text of a module whose functions are decorated is compiled once, all of it together, so one definition
serves both. It holds such functions, what these call, and constants.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import cache, cached_property, update_wrapper
from pathlib import Path
from sys import modules
from typing import Any, Generic, ParamSpec, TypeVar, get_args, get_type_hints

from engine.device import native
from engine.device.native import NativeSource
from engine.device.native.prelude import PRELUDE
from engine.kernels.size import deferrable

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Function = TypeVar("Function", bound=Callable[..., Any])

_CALL = ctypes.PYFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)

_LETTERS = {int: "q", float: "d"}
_ACCESS = {"q": "i64", "d": "f64"}

_OWN_IMPORT = re.compile(r"^from (?:__future__|engine\S*) import .*\n", re.MULTILINE)

# Unlike kernels, without fused products: the same bits as in Python.
_DECORATOR = """
size_function = helper = _njit(
    error_model="numpy", fastmath=False, boundscheck=False, no_cpython_wrapper=True, no_cfunc_wrapper=True
)
"""


def helper(function: Function) -> Function:
    """Decorator for functions that a `size_function` calls."""
    return function


class SizeFunction(Generic[Arguments, Result]):
    """A function of integers and floats that yields one or several.

    Attributes:
        name: What the text calls it.
        library: The functions that are compiled together with it, and its place among them.
        given: A letter for each argument, as `struct` has them.
        made: The same of the results.
    """

    def __init__(self, function: Callable[Arguments, Result]) -> None:
        update_wrapper(self, function)
        self._function, self.name = function, function.__name__
        *given, made = get_type_hints(function).values()
        self.given = "".join([_LETTERS[kind] for kind in given])
        self.made = "".join([_LETTERS[kind] for kind in get_args(made)])
        self.library = _library_of(function.__module__)
        self.number = self.library.add(self)

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return self._function(*args, **kwargs)


class SizeLibrary:
    """The functions of a module, which one native function calls: `run`."""

    def __init__(self, module: str) -> None:
        path = modules[module].__file__
        assert path is not None
        self._module = module
        # While the module is imported: what a file becomes later is not what this process runs.
        self._text = _OWN_IMPORT.sub("", Path(path).read_text(encoding="utf-8"))
        self._functions: list[SizeFunction[..., Any]] = []

    def add(self, function: SizeFunction[..., Any]) -> int:
        """Add a function; returns its place."""
        self._functions.append(function)
        return len(self._functions) - 1

    @cached_property
    def source(self) -> NativeSource:
        """The source of `run`."""
        lines = ["def call_all(block, calls, count):", "    for k in range(count):"]
        lines += ["        kind, at = load_i64(calls, 2 * k), block + 8 * load_i64(calls, 2 * k + 1)"]
        for number, function in enumerate(self._functions):
            given, made = function.given, function.made
            read = [f"load_{_ACCESS[kind]}(at, {place})" for place, kind in enumerate(given)]
            lines += [f"        if kind == {number}:"]
            lines += [f"            r{number} = {function.name}({', '.join(read)})"]
            lines += [
                f"            store_{_ACCESS[kind]}(at, {len(given) + place}, r{number}[{place}])"
                for place, kind in enumerate(made)
            ]
        text = "\n".join([PRELUDE + _DECORATOR + self._text, *lines, ""])
        return NativeSource(f"{self._module} at new sizes", text, "call_all")

    def address(self) -> int | None:
        """The native function; None until it is compiled.

        It takes the addresses of a block of words and of a list of calls, and how many there are. A call is
        two words: the function's number, and the place of its arguments in the block, behind which its
        results go.
        """
        if not native.process_store().is_kept(self.source):
            native.process_store().prepare_ahead([self.source])
            return None
        return native.process_store().load([self.source])[self.source.key]

    def run(self) -> Callable[[int, int, int], None] | None:
        """The function at `address`, for Python."""
        address = self.address()
        return None if address is None else _CALL(address)


@cache
def _library_of(module: str) -> SizeLibrary:
    return SizeLibrary(module)


def size_function(function: Callable[Arguments, Result]) -> SizeFunction[Arguments, Result]:
    """Decorator: a function that plans call at new sizes, see `SizeFunction`; stored plans may name it."""
    return deferrable(SizeFunction(function))
