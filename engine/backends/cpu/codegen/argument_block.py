"""The run-time arguments of a tuned kernel by name: how the kernel reads them and how callers pack them."""

from __future__ import annotations

from collections.abc import Iterable

from engine.backends.cpu.codegen.epilogue import Epilogue

FIRST_WORD = 2
"""A tuned kernel's first own word: before it come the number of tasks and the nanoseconds of one."""


class ArgumentBlock:
    """Consecutive words of an args block; see `engine.backends.cpu.codegen.native_kernel.NativeKernel`.

    Attributes:
        names: The arguments' names, in order; they are variables of the kernel.
        end: The number of the word behind the last one.
    """

    def __init__(self, *names: str | ArgumentBlock, reals: str = "", first: int = FIRST_WORD) -> None:
        """Describe a block.

        Args:
            *names: The names, with spaces between them, and blocks whose arguments are some of this one's.
            reals: Those of the names that are float64; all others are int64.
            first: The number of the first word.
        """
        blocks = [part for part in names if isinstance(part, ArgumentBlock)]
        own = [part.names if isinstance(part, ArgumentBlock) else part.split() for part in names]
        self.names: tuple[str, ...] = tuple(name for part in own for name in part)
        self.end = first + len(self.names)
        self._reals: frozenset[str] = frozenset(reals.split()).union(*(block._reals for block in blocks))
        self._words = {name: first + k for k, name in enumerate(self.names)}
        assert len(self._words) == len(self.names), "a name stands twice"
        assert self._reals <= self._words.keys(), "a real is none of the names"

    def read(self, name: str) -> str:
        """The expression that reads an argument in the kernel."""
        return f"arg_{'f64' if name in self._reals else 'i64'}(args, {self._words[name]})"

    def prologue(self, *buffers: str, epilogue: Epilogue | None = None) -> list[str]:
        """The kernel's statements that make all arguments variables.

        Args:
            *buffers: The variables for the addresses behind them, in the order of a step's output and inputs;
                with an epilogue, which reads its own and the output's, those of the other inputs.
            epilogue: The kernel's epilogue, whose arguments follow the block's.
        """
        own, words = ([], 0) if epilogue is None else (epilogue.arguments, epilogue.words)
        addresses = [f"{name} = arg_i64(args, {self.end + words + k})" for k, name in enumerate(buffers)]
        return [*(f"{name} = {self.read(name)}" for name in self.names), *own, *addresses]

    def reading(self, text: str) -> str:
        """Replace each "{name}" in a kernel's text by the expression that reads it."""
        for name in self.names:
            text = text.replace(f"{{{name}}}", self.read(name))
        return text

    def values(self, **values: float) -> tuple[float, ...]:
        """The arguments in order. Raises `TypeError` for a name that is missing or unknown."""
        if values.keys() != self._words.keys():
            wrong = ", ".join(sorted(values.keys() ^ self._words.keys()))
            raise TypeError(f"the kernel takes {', '.join(self.names)}; missing or unknown: {wrong}")
        return tuple([values[name] for name in self.names])

    def named(self, values: Iterable[float]) -> dict[str, float]:
        """Inverse of `values`, for blocks that include this one."""
        return dict(zip(self.names, values, strict=True))
