"""Half precision is computed in float32, with rounding where onnxruntime's CPU provider rounds."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Mapping, Sequence

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto

from engine import Model, ModelLoader
from engine.compiler.interpreter import interpret
from engine.compiler.passes import promote_float16
from tests.graphs import branch, node, proto
from tests.networks import error, reference

RULES = importlib.import_module("engine.compiler.passes.promote_float16")
RNG = np.random.default_rng(11)
HALF, BRAIN, FLOAT = TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT


def is_half_precise(schema: onnx.defs.OpSchema) -> bool:
    """Whether the pass has a rule for the operator, and this version takes float16."""
    if schema.domain or schema.deprecated or schema.name not in RULES._COMPUTING | RULES._MOVING:
        return False
    decides = schema.inputs[RULES._DECIDES.get(schema.name, 0)].type_str
    return "tensor(float16)" in types_of(schema).get(decides, ())


def types_of(schema: onnx.defs.OpSchema) -> dict[str, Sequence[str]]:
    return {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}


SCHEMAS = [schema for schema in onnx.defs.get_all_schemas_with_history() if is_half_precise(schema)]


def halves(*shape: int, scale: float = 0.5) -> np.ndarray:
    return RNG.normal(0, scale, shape).astype(np.float16)


def promoted(source: bytes) -> Model:
    changed = promote_float16(ModelLoader.read(source))
    changed.check()
    return changed


def kinds(model: Model) -> Counter[str]:
    return Counter(layer.op_type for layer in model.layers)


def same_answers(source: bytes, feeds: Mapping[str, np.ndarray], bound: float = 2e-3) -> Model:
    """The rewritten model, after its answers were compared with onnxruntime's."""
    expected = reference(source, dict(feeds))
    changed = promoted(source)
    found = interpret(changed, feeds)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(np.isinf(found[name]), np.isinf(array))
        finite = np.isfinite(array)
        assert error(found[name][finite].astype(np.float64), array[finite].astype(np.float64)) <= bound
    return changed


def chain(
    nodes: Sequence[onnx.NodeProto], constants: Mapping[str, np.ndarray], ends: str = "float16"
) -> bytes:
    return proto(nodes, {"x": (ends, [4, 6])}, {"y": (ends, None)}, constants, 20)


def cast(source: str, name: str, to: int) -> onnx.NodeProto:
    return node("Cast", [source], [name], to=to)


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: f"{s.name}-{s.since_version}")
def test_results_have_the_types_that_the_schemas_say(schema: onnx.defs.OpSchema) -> None:
    """The tables of the pass against the declarations that the standard brings."""
    allowed = types_of(schema)
    decides = schema.inputs[RULES._DECIDES.get(schema.name, 0)].type_str
    count = len(schema.outputs)
    listed = RULES._RESULTS.get(schema.name, tuple(range(count)))
    for position, output in enumerate(schema.outputs):
        if position in listed:
            # Types that are named apart are chosen by an attribute, or alike in practice.
            alike = output.type_str == decides or schema.name in ("Attention", "DequantizeLinear")
            assert alike
            assert "tensor(float16)" in allowed[output.type_str]
        elif output.type_str == decides:
            assert schema.name in ("BatchNormalization", "Equal") or schema.since_version < 10


def test_a_network_is_rounded_at_its_ends_only() -> None:
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Reshape", ["p", "s"], ["f"]),
        node("MatMul", ["f", "m"], ["g"]),
        node("Softmax", ["g"], ["y"]),
    ]
    constants = {
        "w": halves(5, 3, 3, 3), "b": halves(5), "s": np.array([2, -1], np.int64),
        "m": halves(5 * 3 * 2, 7, scale=0.2),
    }  # fmt: skip
    source = proto(nodes, {"x": ("float16", [2, 3, 6, 4])}, {"y": ("float16", None)}, constants)
    changed = same_answers(source, {"x": halves(2, 3, 6, 4)})
    assert kinds(changed)["Cast"] == 2
    assert all(array.dtype != np.float16 for array in changed.constants.values())


def test_what_only_converts_or_moves_keeps_its_type_and_rounds() -> None:
    source = chain(
        [cast("x", "h", HALF), node("Transpose", ["h"], ["t"]), cast("t", "y", FLOAT)], {}, "float32"
    )
    model = ModelLoader.read(source)
    assert promote_float16(model) is model


def test_a_number_between_layers_does_not_overflow() -> None:
    """As in onnxruntime; the pair of conversions in the middle is the file's own."""
    nodes = [
        cast("x", "h", HALF),
        node("Mul", ["h", "large"], ["a"]),
        cast("a", "b", FLOAT),
        cast("b", "c", HALF),
        node("Mul", ["c", "small"], ["d"]),
        cast("d", "y", FLOAT),
    ]
    constants = {"large": np.array(60000, np.float16), "small": np.array(1e-3, np.float16)}
    x = np.linspace(1, 9, 24, dtype=np.float32).reshape(4, 6)
    changed = same_answers(chain(nodes, constants, "float32"), {"x": x}, 1e-5)
    assert set(kinds(changed)) == {"Mul", "Cast"}


def test_an_output_overflows() -> None:
    nodes = [node("Mul", ["x", "x"], ["y"])]
    x = np.linspace(200, 300, 24, dtype=np.float16).reshape(4, 6)
    changed = same_answers(chain(nodes, {}), {"x": x})
    assert np.isinf(interpret(changed, {"x": x})["y"]).any()


def test_tables_and_caches_stay_half() -> None:
    """A gathered table and a concatenated input are read in half precision and converted afterwards."""
    nodes = [
        node("Gather", ["table", "ids"], ["e"]),
        node("MatMul", ["e", "w"], ["k"]),
        node("Concat", ["past", "k"], ["present"], axis=0),
        node("Mul", ["present", "present"], ["y"]),
    ]
    constants = {"table": halves(9, 6), "w": halves(6, 6)}
    source = proto(
        nodes, {"ids": ("int64", [2]), "past": ("float16", [3, 6])},
        {"y": ("float16", None), "present": ("float16", None)}, constants,
    )  # fmt: skip
    feeds = {"ids": np.array([3, 8]), "past": halves(3, 6)}
    changed = same_answers(source, feeds)
    assert changed.constants["table"].dtype == np.float16
    (joined,) = (layer for layer in changed.layers if layer.op_type == "Concat")
    assert joined.outputs == ("present",)


def test_layers_without_a_rule_get_their_own_type() -> None:
    nodes = [
        node("Mul", ["x", "x"], ["a"]),
        node("QuantizeLinear", ["a", "scale", "zero"], ["q"]),
        node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
    ]
    constants: dict[str, np.ndarray] = {"scale": np.array(2**-6, np.float16), "zero": np.array(3, np.int8)}
    changed = same_answers(chain(nodes, constants), {"x": halves(4, 6)})
    (quantised,) = (layer for layer in changed.layers if layer.op_type == "QuantizeLinear")
    assert quantised.inputs[:2] == ("a", "scale")


def test_results_that_are_no_floats() -> None:
    nodes = [
        node("Mul", ["x", "x"], ["a"]),
        node("ArgMax", ["a"], ["i"], axis=1),
        node("Greater", ["a", "x"], ["g"]),
        node("Where", ["g", "a", "x"], ["w"]),
        node("TopK", ["w", "k"], ["y", "at"], axis=1),
    ]
    source = proto(
        nodes, {"x": ("float16", [4, 6])},
        {"y": ("float16", None), "at": ("int64", None), "i": ("int64", None), "g": ("bool", None)},
        {"k": np.array([2], np.int64)},
    )  # fmt: skip
    same_answers(source, {"x": halves(4, 6)})


def test_subgraphs_take_and_yield_half_precision() -> None:
    """Weights of the graph around are converted once, outside of the body."""
    body = branch(node("MatMul", ["a", "w"], ["n"]), node("Tanh", ["n"], ["t"]))
    other = branch(node("Abs", ["a"], ["m"]))
    nodes = [
        node("Mul", ["x", "x"], ["a"]),
        node("If", ["is"], ["c"], then_branch=body, else_branch=other),
        node("Add", ["c", "x"], ["y"]),
    ]
    source = proto(
        nodes, {"x": ("float16", [4, 6]), "is": ("bool", [])}, {"y": ("float16", None)}, {"w": halves(6, 6)}
    )
    x = halves(4, 6)
    for chosen in (True, False):
        changed = same_answers(source, {"x": x, "is": np.array(chosen)})
    assert changed.constants["w as float32"].dtype == np.float32


def test_bodies_may_use_the_same_names_and_yield_outer_values() -> None:
    """Two branches call a value alike, and one yields what the graph around it has converted."""

    def scaled(scale: str) -> onnx.GraphProto:
        return branch(node("Mul", ["a", scale], ["m"]), node("Tanh", ["m"], ["t"]))

    outer = branch(node("Identity", ["f"], ["o"]))
    wide = branch(node("Neg", ["f"], ["o"]))
    nodes = [
        node("Mul", ["x", "x"], ["a"]),
        cast("a", "f", FLOAT),
        node("If", ["p"], ["b"], then_branch=scaled("s"), else_branch=scaled("r")),
        node("If", ["q"], ["c"], then_branch=scaled("r"), else_branch=scaled("s")),
        node("If", ["q"], ["d"], then_branch=outer, else_branch=wide),
        node("Sub", ["b", "c"], ["y"]),
        cast("d", "z", HALF),
    ]
    inputs: dict[str, tuple[str, list[int]]] = {
        "x": ("float16", [4, 6]),
        "p": ("bool", []),
        "q": ("bool", []),
    }
    constants: dict[str, np.ndarray] = {"s": np.array(2, np.float16), "r": np.array(0.5, np.float16)}
    source = proto(nodes, inputs, {"y": ("float16", None), "z": ("float16", None)}, constants)
    x = halves(4, 6)
    for p in (True, False):
        for q in (True, False):
            changed = same_answers(source, {"x": x, "p": np.array(p), "q": np.array(q)})
    names = [layer.name for layer in changed.walk()]
    assert len(set(names)) == len(names)


def test_bfloat16_is_computed_in_float32_too() -> None:
    w = RNG.normal(0, 0.5, (6, 6)).astype(ml_dtypes.bfloat16)
    nodes = [
        cast("x", "h", BRAIN),
        node("MatMul", ["h", "w"], ["m"]),
        node("Softmax", ["m"], ["s"]),
        cast("s", "y", FLOAT),
    ]
    changed = promoted(chain(nodes, {"w": w}, "float32"))
    x = RNG.normal(size=(4, 6)).astype(np.float32)
    m = x.astype(np.float64) @ w.astype(np.float64)
    expected = np.exp(m) / np.exp(m).sum(1, keepdims=True)
    assert error(interpret(changed, {"x": x})["y"], expected) < 1e-6
    assert kinds(changed) == {"Cast": 1, "MatMul": 1, "Softmax": 1}


def test_random_numbers_of_a_given_type_are_recognised() -> None:
    nodes = [
        node("RandomNormalLike", ["x"], ["n"], seed=1.0),
        node("Mul", ["n", "x"], ["m"]),
        node("Add", ["m", "x"], ["y"]),
    ]
    changed = promoted(chain(nodes, {}))
    by_name = {layer.op_type: layer for layer in changed.layers}
    assert by_name["Mul"].outputs == ("m as float32",)
    assert by_name["Add"].outputs == ("y as float32",)


def test_an_operator_without_a_rule_does_not_spoil_what_follows() -> None:
    """What a layer of one type is fed with has that type, whoever made it."""
    nodes = [
        node("SequenceConstruct", ["x"], ["s"]),
        node("SequenceAt", ["s", "first"], ["a"]),
        node("MatMul", ["a", "w"], ["m"]),
        node("Dropout", ["m"], ["d", "mask"]),
        node("Relu", ["d"], ["y"]),
    ]
    constants: dict[str, np.ndarray] = {"w": halves(6, 6), "first": np.array(0, np.int64)}
    changed = same_answers(chain(nodes, constants), {"x": halves(4, 6)})
    by_name = {layer.op_type: layer for layer in changed.layers}
    assert by_name["MatMul"].outputs == ("m as float32",)
    assert by_name["Relu"].inputs == ("d as float32",)


@pytest.mark.parametrize("past", [0, 5])
def test_a_grown_cache_stays_half(past: int) -> None:
    """Queries, keys and values are promoted; what lies in the cache is not converted to and fro."""
    names = ["q", "k", "v", *(["pk", "pv"] if past else ["", ""]), "lengths", "total"]
    layer = node("GroupQueryAttention", names, ["y", "present_k", "present_v"], num_heads=4, kv_num_heads=2)
    layer.domain = "com.microsoft"
    feeds = {name: halves(1, 3, 32 if name == "q" else 16) for name in "qkv"}
    if past:
        feeds |= {name: halves(1, 2, past, 8) for name in ("pk", "pv")}
    outputs = dict.fromkeys(["y", "present_k", "present_v"], ("float16", None))
    whole: dict[str, np.ndarray] = {
        "lengths": np.array([2 + past], np.int32), "total": np.array(3 + past, np.int32)
    }  # fmt: skip
    plain = proto([layer], {n: ("float16", a.shape) for n, a in feeds.items()}, outputs, whole)
    made = onnx.load_model_from_string(plain)
    made.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    changed = same_answers(bytes(made.SerializeToString()), feeds)
    (attention,) = (layer for layer in changed.layers if layer.op_type == "GroupQueryAttention")
    assert attention.inputs[0] == "q as float32"
    if past:
        assert attention.inputs[3:5] == ("pk", "pv")
        assert attention.outputs[1:] == ("present_k", "present_v")
