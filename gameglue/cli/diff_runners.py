"""What `gameglue diff` compares: one model here, on onnxruntime or by ONNX's reference, layer by layer.

Values inside a model become visible by making them outputs. Each side does that to its own copy of the model
and leaves everything else as it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import onnx
from onnx import numpy_helper

from engine import Model, Output
from engine.base.errors import EngineError, InputError
from engine.compiler.interpreter import leaf_arrays, shape_of
from engine.compiler.trace import Tracer
from engine.graph.importers.onnx_tensors import WeightFolder, read_tensor
from engine.kernels.value import leaves
from gameglue.cli.console import CompileProgress
from gameglue.inference.backend_choice import BackendChoice, open_worker
from gameglue.profiling.exact_products import products_saturate, with_unsigned_weights

Values = dict[str, Any]
"""Arrays, lists of arrays or None, by name."""

CHUNK_BYTES = 256 << 20
"""How much may be visible at once; larger models are run several times."""

_OLD_IR_VERSION = 10  # of 2024, which every onnxruntime reads that runs with this engine

_UNKNOWN_BYTES = CHUNK_BYTES // 64


class Side(ABC):
    """One engine that runs the model on the given inputs."""

    label: str
    names: tuple[str, ...]
    """What every layer yields, in the order of execution."""

    @abstractmethod
    def values(self, names: Sequence[str]) -> Values:
        """Run the model and return these values. Raises `EngineError`."""


class EngineSide(Side):
    """This engine, on one backend."""

    def __init__(self, model: Model, choice: BackendChoice, inputs: Mapping[str, Any]) -> None:
        self.label = choice.label
        self.names = tuple(name for layer in model.layers for name in layer.outputs if name)
        self._model = model
        self._choice = choice
        self._inputs = inputs

    def values(self, names: Sequence[str]) -> Values:
        """These values; layers that they do not depend on are left out."""
        declared = {item.name: item for item in self._model.outputs}
        outputs = tuple(declared.get(name, Output(name, None, None)) for name in names)
        model = self._model.replace(outputs=outputs)
        with (
            CompileProgress(f"{self.label}: preparing kernels") as progress,
            open_worker(model, self._choice, progress) as worker,
        ):
            worker.schedule(self._inputs)
            return worker.take_outputs()


class OnnxSide(Side):
    """Base class of other engines that read the same file."""

    def __init__(self, path: Path, inputs: Mapping[str, Any]) -> None:
        self._proto = whole_proto(path)
        self.names = tuple(name for node in self._proto.graph.node for name in node.output if name)
        self._inputs = inputs

    def showing(self, names: Sequence[str]) -> onnx.ModelProto:
        """The model with these outputs."""
        declared = {item.name: item for item in self._proto.graph.output}
        proto = onnx.ModelProto()
        proto.CopyFrom(self._proto)
        del proto.graph.output[:]
        proto.graph.output.extend(declared.get(n, onnx.ValueInfoProto(name=n)) for n in names)
        return proto

    @abstractmethod
    def run(self, proto: onnx.ModelProto, names: Sequence[str]) -> Sequence[Any]:
        """Run a model and return its outputs."""

    def values(self, names: Sequence[str]) -> Values:
        """Compute these values; errors of the other engine become `InputError`."""
        try:
            return dict(zip(names, self.run(self.showing(names), names), strict=True))
        except EngineError:
            raise
        except Exception as error:  # its exceptions have no common class
            raise InputError(f"{self.label} cannot run this model: {str(error).strip()}") from error


class OnnxRuntimeSide(OnnxSide):
    """onnxruntime on the CPU, without its optimisations: they would take layers away."""

    label = "onnxruntime"

    def run(self, proto: onnx.ModelProto, names: Sequence[str]) -> Sequence[Any]:
        try:
            import onnxruntime  # optional
        except ImportError:
            raise InputError(
                "comparing with onnxruntime needs it: pip install onnxruntime (or --against onnx-reference)"
            ) from None
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        if products_saturate():
            with_unsigned_weights(proto)
        # It refuses files of a newer format regardless of their content; an operator that it lacks it names.
        proto.ir_version = min(proto.ir_version, _OLD_IR_VERSION)
        session = onnxruntime.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return list(session.run(list(names), dict(self._inputs)))


class ReferenceSide(OnnxSide):
    """ONNX's reference evaluator: slow, but as specified."""

    label = "onnx-reference"

    def run(self, proto: onnx.ModelProto, names: Sequence[str]) -> Sequence[Any]:
        from onnx.reference import ReferenceEvaluator  # imports every operator there is

        return list(ReferenceEvaluator(proto).run(list(names), dict(self._inputs)))


def whole_proto(path: Path) -> onnx.ModelProto:
    """A model file with its weight files inside it, which are read by the engine's own careful reader."""
    proto = onnx.load(path, load_external_data=False)
    graphs = [proto.graph]
    while graphs:
        graph = graphs.pop()
        tensors = list(graph.initializer)
        for node in graph.node:
            for attribute in node.attribute:
                tensors += [attribute.t, *attribute.tensors]
                graphs += [body for body in (attribute.g, *attribute.graphs) if body.node]
        for tensor in tensors:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                array = read_tensor(tensor, WeightFolder(path.parent), f"{path}: constant '{tensor.name}'")
                tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return proto


def chunks(model: Model, inputs: Mapping[str, Any], names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The names in order, in groups that take about `CHUNK_BYTES` together."""
    trace = Tracer(model).trace({n: shape_of(x) for n, x in inputs.items()}, leaf_arrays(inputs))
    ends, used = [0], 0
    for position, name in enumerate(names):
        known = name in trace.values
        size = sum(v.size * v.dtype.itemsize for v in leaves(trace.values[name])) if known else _UNKNOWN_BYTES
        if used and used + size > CHUNK_BYTES:
            ends.append(position)
            used = 0
        used += size
    for start, end in pairwise([*ends, len(names)]):
        yield tuple(names[start:end])
