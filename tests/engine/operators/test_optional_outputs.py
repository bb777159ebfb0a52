"""Operators with several outputs: each output left out, named but unread, or read, in every combination.

The operators are found by their declarations, and ONNX's own cases give the layers; `LAYERS` has those for
operators that ONNX has no case for, those of `contrib.test_layers` among them. All combinations of one layer
are layers of one model.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    NotImplemented,
)

from engine import ModelLoader
from engine.base.errors import EngineError
from engine.compiler.interpreter import interpret
from engine.operators import OPERATORS
from engine.operators.layout import CHANNELS_LAST
from tests.engine.conftest import CHANNELS, MakeWorker
from tests.engine.operators.contrib.test_layers import CASES
from tests.engine.operators.test_cases import expected_on
from tests.onnx_cases import Case, all_cases, compare
from tests.peer import open_session

onnxruntime.set_default_logger_severity(4)

REFUSALS = (Fail, InvalidArgument, InvalidGraph, NotImplemented)
"""What onnxruntime raises for layers that it cannot run."""

ABSENT, UNREAD, READ = range(3)
MOST = 27
"""Combinations of three outputs; of more outputs, so many are drawn."""

Name = tuple[str, str]
"""An operator's domain and name."""


def with_several_outputs() -> set[Name]:
    """The operators that may yield more than one output, by what their definitions return."""
    found = set()
    for op in OPERATORS:
        returned = str(inspect.signature(op.define).return_annotation)
        if op.kind == "control" or "tuple" in returned:
            found.add((op.domain, op.name))
    return found


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def ints(*numbers: int, dtype: str = "int32") -> np.ndarray:
    return np.array(numbers, dtype)


CONTRIB = "com.microsoft"
CACHE = [floats(2, 2, 3, 4), floats(2, 2, 3, 4)]
TREE: dict[str, Any] = {
    "nodes_treeids": [0] * 3, "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0] * 3,
    "nodes_values": [0.1, 0.0, 0.0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0], "class_treeids": [0, 0],
    "class_nodeids": [1, 2], "class_ids": [0, 2], "class_weights": [1.0, 1.0],
}  # fmt: skip
LAYERS: dict[Name, tuple[list[np.ndarray | None], dict[str, Any], int]] = {
    ("", "SimplifiedLayerNormalization"): ([floats(2, 3, 4), floats(4)], {}, 2),
    (CONTRIB, "SimplifiedLayerNormalization"): ([floats(2, 3, 4), floats(4)], {}, 2),
    (CONTRIB, "SkipLayerNormalization"): ([floats(2, 3, 4), floats(2, 3, 4), floats(4)], {}, 4),
    (CONTRIB, "SkipSimplifiedLayerNormalization"): ([floats(2, 3, 4), floats(2, 3, 4), floats(4)], {}, 4),
    (CONTRIB, "SkipGroupNorm"): (
        [floats(1, 2, 2, 4), floats(4), floats(4), floats(1, 2, 2, 4)], {"activation": 0, "groups": 2}, 2,
    ),
    (CONTRIB, "EmbedLayerNormalization"): (
        [ints(0, 1, 2).reshape(1, 3), None, floats(5, 4), floats(3, 4), None, floats(4), floats(4)], {}, 3,
    ),
    (CONTRIB, "Attention"): (
        [floats(2, 3, 8), floats(8, 24), floats(24), None, floats(2, 2, 2, 3, 4)],
        {"num_heads": 2, "unidirectional": 1}, 2,
    ),
    (CONTRIB, "MultiHeadAttention"): (
        [floats(2, 3, 8), floats(2, 3, 8), floats(2, 3, 8), None, None, None, *CACHE], {"num_heads": 2}, 3,
    ),
    (CONTRIB, "GroupQueryAttention"): (
        [floats(2, 1, 16), floats(2, 1, 8), floats(2, 1, 8), *CACHE, ints(3, 3), ints(4)],
        {"num_heads": 4, "kv_num_heads": 2, "qk_output": 1}, 4,
    ),
    (CONTRIB, "CausalConvWithState"): ([floats(1, 2, 4), floats(2, 1, 3), None, floats(1, 2, 2)], {}, 2),
    (CONTRIB, "LinearAttention"): (
        [floats(1, 3, 8), floats(1, 3, 8), floats(1, 3, 8), floats(1, 2, 4, 4)],
        {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "linear"}, 2,
    ),
    (CONTRIB, "LinearAttentionGate"): ([floats(1, 3, 4), floats(4), floats(4), floats(1, 3, 4)], {}, 2),
    ("ai.onnx.ml", "LinearClassifier"): (
        [floats(3, 2)], {"coefficients": [0.5, -0.5, 0.2, 0.1], "intercepts": [0.0, 0.1],
                         "classlabels_ints": [3, 5], "post_transform": "SOFTMAX"}, 2,
    ),
    ("ai.onnx.ml", "TreeEnsembleClassifier"): ([floats(3, 1)], {**TREE, "classlabels_int64s": [3, 5, 7]}, 2),
    ("ai.onnx.ml", "SVMClassifier"): (
        [floats(3, 2)], {"classlabels_ints": [3, 5], "coefficients": [1.0, -1.0], "kernel_type": "LINEAR",
                         "kernel_params": [0.1, 0.0, 3.0], "rho": [0.2],
                         "support_vectors": [0.1, 0.2, 0.3, -0.4], "vectors_per_class": [1, 1]}, 2,
    ),
}  # fmt: skip
"""Inputs, attributes and number of outputs of a layer, for operators without a case of ONNX's."""

for _case in sorted(CASES.values(), key=lambda c: -c.outputs):
    _layer = [*_case.arrays], dict(_case.attributes), _case.outputs
    LAYERS.setdefault((_case.domain, _case.op_type), _layer)


NEVER_READ = {(CONTRIB, "SkipSimplifiedLayerNormalization"): {1}}
"""Outputs that a declaration names and no layer yields: there is no mean."""


def written(name: Name) -> onnx.ModelProto:
    """The model of a layer in `LAYERS`."""
    arrays, attributes, count = LAYERS[name]
    names = ["" if a is None else f"x{i}" for i, a in enumerate(arrays)]
    node = helper.make_node(
        name[1], names, [f"y{i}" for i in range(count)], "it", domain=name[0], **attributes
    )
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(names, arrays, strict=True)
        if a is not None
    ]
    outputs = [onnx.ValueInfoProto(name=n) for n in node.output]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(
        helper.make_graph([node], "one", inputs, outputs),
        opset_imports=[*opsets, helper.make_opsetid(CONTRIB, 1)], ir_version=10,
    )  # fmt: skip


@cache
def cases() -> dict[Name, tuple[onnx.ModelProto, dict[str, Any]]]:
    """For each operator with several outputs a model of one layer, and its inputs."""
    found: dict[Name, Case] = {}
    wanted = with_several_outputs()
    for case in all_cases():
        nodes = case.proto.graph.node
        if len(nodes) == 1 and all(expected_on(case, channel) for channel in ("numpy", *CHANNELS)):
            domain = nodes[0].domain
            name = ("" if domain == "ai.onnx" else domain, nodes[0].op_type)
            best = found.get(name)
            if name in wanted and (best is None or outputs_of(case.proto) > outputs_of(best.proto)):
                found[name] = case
    models = {name: (case.proto, case.data_sets[0][0]) for name, case in found.items()}
    for name, (arrays, _, _) in LAYERS.items():
        models[name] = (written(name), {f"x{i}": a for i, a in enumerate(arrays) if a is not None})
    return models


def outputs_of(model: onnx.ModelProto) -> int:
    """How many outputs the model's layer names."""
    return len(model.graph.node[0].output)


def widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every output that its operator's declaration allows, where both engines take that."""
    node = model.graph.node[0]
    versions = {o.domain: o.version for o in model.opset_import}
    try:
        schema = onnx.defs.get_schema(node.op_type, versions.get(node.domain, 1), node.domain)
    except onnx.defs.SchemaError:
        return model
    variadic = any(o.option == onnx.defs.OpSchema.FormalParameterOption.Variadic for o in schema.outputs)
    least = len(node.output) - (not all(node.output))
    for count in range(0 if variadic else len(schema.outputs), least, -1):
        other = onnx.ModelProto()
        other.CopyFrom(model)
        del other.graph.node[0].output[:], other.graph.output[:]
        other.graph.node[0].output.extend(f"out{i}" for i in range(count))
        other.graph.output.extend(onnx.ValueInfoProto(name=f"out{i}") for i in range(count))
        try:
            open_session(other.SerializeToString())
        except REFUSALS:
            continue
        return other
    return model


def combinations(count: int, never: set[int]) -> Iterator[tuple[int, ...]]:
    """What becomes of each of `count` outputs; at least one is read, and none of `never`."""
    kinds = [(ABSENT, UNREAD) if i in never else (ABSENT, UNREAD, READ) for i in range(count)]
    every = [c for c in product(*kinds) if READ in c]
    step = -(-len(every) // MOST)
    yield from every[::step]


def combined(model: onnx.ModelProto, never: set[int]) -> onnx.ModelProto:
    """The model's layer once for each combination; output i of combination c is called c_i where read."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    node = model.graph.node[0]
    del made.graph.node[:], made.graph.output[:], made.graph.value_info[:]
    declared = [item.type for item in model.graph.output]
    for number, chosen in enumerate(combinations(len(node.output), never)):
        layer = made.graph.node.add()
        layer.CopyFrom(node)
        layer.name = f"layer {number}"
        del layer.output[:]
        layer.output.extend("" if c == ABSENT else f"{number}_{i}" for i, c in enumerate(chosen))
        while not layer.output[-1]:
            layer.output.pop()
        for i in [i for i, c in enumerate(chosen) if c == READ]:
            item = made.graph.output.add(name=f"{number}_{i}")
            if len(declared) == len(node.output):
                item.type.CopyFrom(declared[i])
    return made


def expected_of(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any] | None:
    """onnxruntime's answer with all outputs read, where it has the operator."""
    try:
        session = open_session(model.SerializeToString())
        results: list[Any] = session.run(None, dict(feeds))
    except REFUSALS:
        return None
    return results


@cache
def prepared(name: Name, is_known: bool = False) -> tuple[bytes, dict[str, Any], dict[int, Any], bool]:
    """The model of all combinations, its inputs, what each output is, and whether only by its shape.

    With `is_known` the numbers that a layer takes after the first are constants, as weights are.
    """
    model, feeds = cases()[name]
    never = NEVER_READ.get(name, set())
    model = widened(model)
    # Where x86-64 has no VNNI, onnxruntime's sums with weights of 8 bits that are inputs saturate.
    feeds = {
        n: np.asarray(a // 2) if isinstance(a, np.ndarray) and a.dtype == np.int8 else a
        for n, a in feeds.items()
    }
    results = expected_of(model, feeds)
    is_random = any(op.precision == "random" for op in OPERATORS if (op.domain, op.name) == name)
    node = model.graph.node[0]
    if results is None or is_random:
        kept = [item for item in model.graph.output if list(node.output).index(item.name) not in never]
        del model.graph.output[:]
        model.graph.output.extend(kept)
        ours = interpret(ModelLoader.load(model.SerializeToString()), feeds)
        results = [ours[item.name] for item in model.graph.output]
    by_position = {[*node.output].index(o.name): r for o, r in zip(model.graph.output, results, strict=True)}
    made = combined(model, never)
    given = dict(feeds)
    if is_known:
        numbers = {n for n, a in feeds.items() if isinstance(a, np.ndarray) and a.dtype == np.float32}
        known = numbers & set(node.input[1:])
        kept = [item for item in made.graph.input if item.name not in known]
        del made.graph.input[:]
        made.graph.input.extend(kept)
        made.graph.initializer.extend(numpy_helper.from_array(given.pop(n), n) for n in sorted(known))
    return made.SerializeToString(), given, by_position, is_random


def check(name: Name, found: Mapping[str, Any], results: dict[int, Any], is_random: bool) -> None:
    """Compare the outputs of every combination."""
    for key, value in found.items():
        expected = results[int(key.split("_")[1])]
        if is_random:
            assert value.shape == expected.shape, key
        else:
            compare(value, expected, 1e-4)


WITHOUT = {
    (CONTRIB, "MoEGroupRouter"), (CONTRIB, "SparseAttention"), (CHANNELS_LAST, "MaxPool"),
} - set(cases())  # fmt: skip
"""Operators whose layers onnxruntime's CPU lacks or takes with one output only; their own tests read all.

So does the pass that writes layers with channels last.
"""

NAMES = sorted(with_several_outputs() - WITHOUT)


def labelled(name: Name) -> str:
    return ".".join(name).strip(".")


def test_every_operator_with_several_outputs_has_a_layer() -> None:
    missing = with_several_outputs() - set(cases()) - WITHOUT
    assert not missing, f"add a layer of {sorted(missing)} to LAYERS"


@pytest.mark.parametrize("name", NAMES, ids=labelled)
def test_by_numpy(name: Name) -> None:
    source, feeds, results, is_random = prepared(name)
    check(name, interpret(ModelLoader.load(source), feeds), results, is_random)


def on_backend(name: Name, channel: str, make_worker: MakeWorker, is_known: bool) -> None:
    source, feeds, results, is_random = prepared(name, is_known)
    worker = make_worker(ModelLoader.load(source), channel, allow_fallback=True)
    worker.schedule(feeds)
    check(name, worker.take_outputs(), results, is_random)


@pytest.mark.parametrize("name", [("", "LSTM"), ("", "GRU"), ("", "RNN")], ids=labelled)
def test_recurrent_layers_on_the_cpu(name: Name, make_worker: MakeWorker) -> None:
    """Exporters name the last states of a recurrent layer that nobody reads. One kernel ran all steps then,
    yielded one output, and the layer was refused for its three names.
    """
    on_backend(name, "cpu", make_worker, True)


@pytest.mark.long
@pytest.mark.parametrize("is_known", [False, True], ids=["computed", "known"])
@pytest.mark.parametrize("name", NAMES, ids=labelled)
def test_every_backend(name: Name, channel: str, is_known: bool, make_worker: MakeWorker) -> None:
    on_backend(name, channel, make_worker, is_known)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_an_output_that_the_operator_lacks_is_refused(count: int) -> None:
    node = helper.make_node("Relu", ["x"], [f"y{i}" for i in range(count)], "it")
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("x", "y0")]
    model = helper.make_model(helper.make_graph([node], "one", info[:1], info[1:]))
    with pytest.raises(EngineError, match=f"'it' .Relu. has {count} outputs; the operator yields 1"):
        interpret(ModelLoader.load(model.SerializeToString()), {"x": floats(2)})
