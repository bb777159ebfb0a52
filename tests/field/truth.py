"""A model's answers in float64: how far onnxruntime itself is from them is part of what others may differ by.

Logarithms of small powers, softmax over large sums and the like magnify rounding, and two runs of onnxruntime
share their rounding. The same formulas in float64 tell whose answer is off. They are this engine's own, so
they count only as far as onnxruntime agrees with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from engine import ModelLoader, Worker
from tests.field.agreement import difference
from tests.field.feeds import Feed

MOST = 1e-3
"""Beyond this difference between float64 and onnxruntime, one of them computes something else."""


def in_float64(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every float32 number and type turned into float64."""
    _widen(model.graph)
    return model


def _widen(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                _widen_tensor(attribute.t)
            elif attribute.type == onnx.AttributeProto.GRAPH:
                _widen(attribute.g)
            elif node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        tensor.CopyFrom(
            numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name)
        )


def infer(worker: Worker, feed: Feed) -> dict[str, Any]:
    """Schedule once and wait for every output, by name."""
    worker.schedule(feed)
    return worker.take_outputs()


@dataclass(frozen=True)
class Truth:
    """A model, its inputs and what onnxruntime answers, to be compared with float64 where somebody asks."""

    path: Path
    feeds: Sequence[Feed]
    expected: Sequence[dict[str, Any]]

    @cached_property
    def errors(self) -> list[dict[str, float]]:
        """How far onnxruntime is from float64, for each set of inputs and output; nothing where none tells.

        That is where a layer has no float64, and where the answers have nothing in common.
        """
        try:
            return list(self._measured())
        except Exception:  # noqa: BLE001 - whatever a model provokes
            return [{} for _ in self.feeds]

    def _measured(self) -> Iterator[dict[str, float]]:
        model = in_float64(onnx.load(self.path))
        with Worker(ModelLoader.load(model.SerializeToString())) as worker:
            for feed, answers in zip(self.feeds, self.expected, strict=True):
                wide = {n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in feed.items()}
                true = infer(worker, wide)
                errors = {name: _apart(answer, true[name]) for name, answer in answers.items()}
                yield {name: error for name, error in errors.items() if error <= MOST}


def _apart(answer: Any, truth: Any) -> float:
    """The difference, 0 for what is not one array of numbers, or of another shape."""
    if not isinstance(answer, np.ndarray) or not isinstance(truth, np.ndarray):
        return 0.0
    if answer.shape != truth.shape or answer.dtype.kind != "f":
        return 0.0
    return difference(answer.astype(np.float64), truth.astype(np.float64))
