"""FlexAttention: attention whose scores and probabilities pass through subgraphs of the model's own."""

from __future__ import annotations

from math import sqrt

from engine.base.dtypes import arithmetic_type, as_dtype
from engine.graph.model import Model
from engine.kernels.expr import cast
from engine.kernels.value import Entry, Value
from engine.operators.attention import PRECISIONS, Heads, check_precision, geometry_of, scores_of, weighted
from engine.operators.builder import Builder
from engine.operators.control_flow_interface import Body, ControlFlow
from engine.operators.normalization import softmax_over
from engine.operators.reductions import wide
from engine.operators.registry import operator


@operator("FlexAttention", kind="control", since=1, domain="ai.onnx.preview")
class FlexAttention(ControlFlow):
    """prob_mod(softmax(score_mod(scale * Q K'))) V; a modifier takes and yields (batch, heads, L, S)."""

    def __init__(
        self, k: Builder, q: Value, key: Value, value: Value, *, prob_mod: Model | None = None,
        scale: float | None = None, score_mod: Model | None = None, softmax_precision: int | None = None,
    ) -> None:  # fmt: skip
        if not q.rank == key.rank == value.rank == 4:
            k.error(f"takes Q, K and V of rank 4, not {q.rank}, {key.rank} and {value.rank}")
        check_precision(k, softmax_precision)
        stored = wide(q.dtype) if softmax_precision is None else as_dtype(PRECISIONS[softmax_precision])
        self.dtype, self.values = q.dtype, Heads.of(value)
        queries, keys = Heads.of(q), Heads.of(key)
        self.geometry = geometry_of(k, queries, keys, self.values)
        scores = scores_of(
            k, queries, keys, self.geometry, 1.0 / sqrt(q.shape[3]) if scale is None else scale
        )
        if scores.dtype != stored:
            scores = k.elementwise(lambda e: cast(e, arithmetic_type(stored)), scores, dtype=stored)
        self.current = k.alias(scores, self.geometry.shape)
        modifiers = {"score_mod": score_mod, "prob_mod": prob_mod}
        self.modifiers = tuple((name, graph) for name, graph in modifiers.items() if graph is not None)
        if score_mod is None:
            self.current = softmax_over(k, self.current, 3, 4)

    def next_iteration(self, k: Builder) -> Body | None:
        if not self.modifiers:
            return None
        name, graph = self.modifiers[0]
        if len(graph.inputs) != 1 or len(graph.outputs) != 1:
            found = f"{len(graph.inputs)} inputs and {len(graph.outputs)} outputs"
            k.error(f"{name} has {found}, expected one of each")
        return Body(graph, (self.current,), name)

    def receive(self, k: Builder, outputs: tuple[Entry, ...]) -> None:
        (name, _), *_ = self.modifiers
        self.modifiers = self.modifiers[1:]
        found = outputs[0]
        wanted = (self.geometry.shape, self.current.dtype)
        if not isinstance(found, Value) or (found.shape, found.dtype) != wanted:
            k.error(f"{name} turns {self.current} into {found}, and must keep shape and type")
        self.current = softmax_over(k, found, 3, 4) if name == "score_mod" else found

    def results(self, k: Builder) -> tuple[Entry, ...]:
        probabilities = k.alias(self.current, self.geometry.space)
        return (weighted(k, probabilities, self.values, self.geometry, self.dtype),)

    def live_values(self) -> tuple[Entry, ...]:
        return (self.current, self.values.value)
