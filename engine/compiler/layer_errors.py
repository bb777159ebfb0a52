"""Planning errors, which name the layer and its inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from engine.base.errors import EngineError, ShapeError
from engine.base.memory.out_of_memory import naming_out_of_memory
from engine.compiler.value_conversion import describe
from engine.graph.model import Layer
from engine.kernels.value import Entry


@contextmanager
def naming(layer: Layer, inputs: Sequence[Entry] = ()) -> Iterator[None]:
    """Convert exceptions raised while a layer is planned to an error that names the layer."""
    try:
        with naming_out_of_memory(f"what the host computes for {layer}"):
            yield
    except EngineError:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        shown = f" cannot take inputs {', '.join(map(describe, inputs))}" if inputs else ""
        raise ShapeError(f"{layer}{shown}: {error}") from error
