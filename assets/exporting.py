"""From a trained network to one ONNX file: no layers without use, no word about the machine that made it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import torch
from onnxscript.optimizer import fold_constants, optimize
from torch import Tensor, nn

OPSET = 18


class Probabilities(nn.Module):
    """A network of scores (n, classes) with a softmax behind it, as it is exported."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, given: Tensor) -> Tensor:
        return torch.softmax(self.network(given), dim=1)


def export(
    network: nn.Module,
    example: tuple[Tensor, ...],
    path: Path,
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    dynamic: tuple[Any, ...] | None = None,
    optimizes: bool = False,
) -> None:
    """Write `network` in evaluation mode to `path`; the file's stem names the graph.

    example: inputs with at least 2 rows. Each is a tensor of its own: the exporter takes one that is given
    twice for one input.
    dynamic: for each parameter of `forward`, which axes are dynamic, as `torch.export` wants to be told.
    Without it, the first axis of each input is, by the name "batch".
    optimizes: let the exporter's own optimiser at it, which leaves out biases of zeros. It would fold
    batch-norms, too, which the engine's passes are to do.
    """
    if dynamic is None:
        batch = torch.export.Dim("batch")
        dynamic = tuple({0: batch} for _ in example)
    program = torch.onnx.export(
        network.eval(),
        example,
        input_names=list(inputs),
        output_names=list(outputs),
        opset_version=OPSET,
        dynamic_shapes=dynamic,
        optimize=optimizes,
        verbose=False,
        dynamo=True,
    )
    if program is None:
        raise RuntimeError("torch.onnx.export returned no program")
    (optimize if optimizes else fold_constants)(program.model)
    model = program.model_proto
    strip(model, path.stem)
    onnx.checker.check_model(model, full_check=True)
    onnx.save_model(model, path)


def strip(model: onnx.ModelProto, name: str) -> None:
    """Take out layers without use, and the exporter's notes: stack traces, names of modules."""
    graph = model.graph
    wanted = {output.name for output in graph.output}
    for node in reversed(list(graph.node)):
        if wanted.isdisjoint(node.output):
            graph.node.remove(node)
        else:
            wanted.update(node.input)
    for tensor in [tensor for tensor in graph.initializer if tensor.name not in wanted]:
        graph.initializer.remove(tensor)
    del graph.value_info[:]
    for thing in (model, graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        del thing.metadata_props[:]
        thing.doc_string = ""
    for index, node in enumerate(graph.node):
        node.name = f"{node.op_type.lower()}_{index}"
    graph.name = name
    model.producer_version = ""
