"""Argument blocks of kernels: the words at `args` in `kernel(args, begin, end)`.

They are the step's sizes (of a printed kernel over more than one axis also how many blocks a row has, and the
elements of one), its run-time arguments, then the addresses of the output and the inputs.
"""

from __future__ import annotations

from engine.compiler.plan import Step


def has_blocks(step: Step) -> bool:
    """Whether the rows of a step may be cut into blocks."""
    return step.is_generic and len(step.space) > 1


def count_words(step: Step) -> int:
    """How many words the args of a step have, those of a window included."""
    window = 0 if step.window is None else 2
    return window + len(step.space) + 2 * has_blocks(step) + len(step.values) + 1 + len(step.inputs)
