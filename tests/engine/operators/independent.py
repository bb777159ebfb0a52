"""What onnxruntime or ONNX's reference makes of a single layer: independent of the engine's definitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from engine import ModelLoader
from tests.engine.conftest import MakeWorker, answers
from tests.networks import error
from tests.peer import open_session

Arrays = Sequence[np.ndarray | None]
Attributes = Mapping[str, Any] | None


def proto(
    op_type: str, arrays: Arrays, attributes: Attributes, opset: int, outputs: int, domain: str = "",
    known: Sequence[int] = (),
) -> onnx.ModelProto:  # fmt: skip
    """A model of one layer with inputs x0, x1, ..., constants at the positions `known`, outputs y0, ..."""
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(arrays)]
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for i, (name, a) in enumerate(zip(names, arrays, strict=True))
        if a is not None and i not in known
    ]
    constants = [numpy_helper.from_array(a, names[i]) for i in known if (a := arrays[i]) is not None]
    made = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op_type, names, made, domain=domain, **(attributes or {}))
    outs = [helper.make_empty_tensor_value_info(name) for name in made]
    graph = helper.make_graph([node], "one", infos, outs, constants)
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def by_onnxruntime(
    op_type: str, arrays: Arrays, attributes: Attributes = None, *, opset: int = 21, outputs: int = 1,
    domain: str = "", known: Sequence[int] = (),
) -> list[np.ndarray]:  # fmt: skip
    """What onnxruntime yields."""
    model = proto(op_type, arrays, attributes, opset, outputs, domain, known)
    session = open_session(model.SerializeToString())
    feeds = {f"x{i}": a for i, a in enumerate(arrays) if a is not None and i not in known}
    return [np.asarray(y) for y in session.run(None, feeds)]


def hold_by_onnxruntime(
    source: bytes, shapes: Sequence[tuple[int, ...]], channel: str, make_worker: MakeWorker
) -> None:
    """A backend's answers for random numbers of each shape are onnxruntime's."""
    session, worker = open_session(source), make_worker(ModelLoader.load(source), channel)
    for shape in shapes:
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        outputs = zip(worker.model.outputs, answers(worker, x), session.run(None, {"x": x}), strict=True)
        for output, found, expected in outputs:
            assert error(found, expected) < 1e-5, (output.name, shape)


def by_reference(
    op_type: str, arrays: Arrays, attributes: Attributes = None, *, opset: int = 22, outputs: int = 1
) -> list[np.ndarray]:
    """What ONNX's reference evaluator yields."""
    evaluator = ReferenceEvaluator(proto(op_type, arrays, attributes, opset, outputs))
    found = evaluator.run(None, {f"x{i}": a for i, a in enumerate(arrays) if a is not None})
    assert isinstance(found, list)
    return [np.asarray(y) for y in found]
