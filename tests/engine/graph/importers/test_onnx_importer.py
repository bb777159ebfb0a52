"""What an ONNX file becomes: layers, constants, shapes, attributes, inlined functions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, reference

from engine.base.errors import ModelImportError
from engine.graph.importers.onnx_importer import read_onnx
from engine.graph.model import UNTYPED, Layer, Model
from tests.peer import open_session

F = TensorProto.FLOAT


def make_model(nodes, inputs=("x",), outputs=("y",), shape=("n", 4), opset=17, **kwargs) -> onnx.ModelProto:
    """A model whose inputs and outputs are float32 of `shape`."""
    initializers = kwargs.pop("initializer", [])
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, F, shape) for name in inputs],
        [helper.make_tensor_value_info(name, F, None) for name in outputs],
        initializers,
    )
    imports = kwargs.pop("opset_imports", [helper.make_opsetid("", opset)])
    return helper.make_model(graph, opset_imports=imports, **kwargs)


def read(proto: onnx.ModelProto, **kwargs) -> Model:
    return read_onnx(proto.SerializeToString(), **kwargs)


def light_models() -> list[Path]:
    return sorted((Path(os.path.dirname(onnx.__file__)) / "backend/test/data/light").glob("*.onnx"))


@pytest.mark.parametrize("path", light_models(), ids=lambda path: path.stem)
def test_layers_and_constants_match_the_file(path: Path) -> None:
    model = read_onnx(path)
    graph = onnx.load(path).graph
    nodes = [node for node in graph.node if node.op_type != "Constant"]
    assert [layer.op_type for layer in model.layers] == [node.op_type for node in nodes]
    assert [layer.outputs[0] for layer in model.layers] == [node.output[0] for node in nodes]
    initial = {tensor.name for tensor in graph.initializer}
    assert [item.name for item in model.inputs] == [i.name for i in graph.input if i.name not in initial]
    for tensor in graph.initializer:
        np.testing.assert_array_equal(model.constants[tensor.name], numpy_helper.to_array(tensor))


def test_named_dimensions_are_kept() -> None:
    model = read(make_model([helper.make_node("Relu", ["x"], ["y"])], shape=("batch", None, 3)))
    assert model.inputs[0].shape == ("batch", None, 3)
    assert model.dim_names == ("batch",)
    assert model.outputs[0].shape is None
    assert model.opsets == {"": 17}


def test_a_negative_size_reads_as_unknown() -> None:
    assert read(make_model([helper.make_node("Relu", ["x"], ["y"])], shape=(-1, 3))).inputs[0].shape == (
        None,
        3,
    )


def test_sizes_called_by_a_question_mark_are_unknown_and_need_not_be_equal() -> None:
    model = make_model([helper.make_node("Relu", ["x"], ["y"])], shape=("?", "?"))
    shape = read(model).inputs[0].shape
    assert shape is not None
    assert tuple(shape) == (None, None)
    assert shape.matches((2, 3))


def test_every_layer_gets_a_name_of_its_own() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="r"),
        helper.make_node("Relu", ["a"], ["b"], name="r"),
    ]
    nodes += [helper.make_node("Relu", ["b"], ["c"]), helper.make_node("Relu", ["c"], ["y"])]
    names = [layer.name for layer in read(make_model(nodes)).layers]
    assert len(set(names)) == 4
    assert all(names)
    assert names[0] == "r"


def test_layers_are_put_in_order() -> None:
    nodes = [helper.make_node("Relu", ["a"], ["y"]), helper.make_node("Neg", ["x"], ["a"])]
    assert [layer.op_type for layer in read(make_model(nodes)).layers] == ["Neg", "Relu"]


def test_a_cycle_is_refused() -> None:
    nodes = [helper.make_node("Add", ["x", "y"], ["a"], name="first"), helper.make_node("Relu", ["a"], ["y"])]
    with pytest.raises(ModelImportError, match="cycle.*'first'"):
        read(make_model(nodes))


def test_attributes_become_python_values() -> None:
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    node = helper.make_node(
        "Anything",
        ["x", "", "x", ""],
        ["y", ""],
        domain="own",
        f=0.5,
        i=-3,
        s="text",
        b=b"\xff\x00",
        fs=[1.0, 2.0],
        ints=[1, 2],
        ss=["a", "b"],
        t=numpy_helper.from_array(weights),
    )
    [layer] = read(
        make_model([node], opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("own", 3)])
    ).layers
    assert (layer.domain, layer.version) == ("own", 3)
    assert layer.inputs == ("x", "", "x")
    assert layer.outputs == ("y",)
    values = dict(layer.attributes)
    np.testing.assert_array_equal(values.pop("t"), weights)
    assert values == {
        "f": 0.5,
        "i": -3,
        "s": "text",
        "b": b"\xff\x00",
        "fs": (1.0, 2.0),
        "ints": (1, 2),
        "ss": ("a", "b"),
    }
    assert isinstance(values["i"], int)
    assert isinstance(values["f"], float)


CONSTANT_FORMS: dict[str, tuple[Any, Any]] = {
    "value": (np.array([[1, 2]], np.int16), np.array([[1, 2]], np.int16)),
    "value_float": (0.25, np.float32(0.25)),
    "value_floats": ([0.25, 2.0], np.array([0.25, 2.0], np.float32)),
    "value_int": (7, np.int64(7)),
    "value_ints": ([7, 8], np.array([7, 8], np.int64)),
    "value_string": ("word", np.array("word", object)),
    "value_strings": (["a", "b"], np.array(["a", "b"], object)),
}


@pytest.mark.parametrize("form", CONSTANT_FORMS)
def test_constant_nodes_become_constants(form: str) -> None:
    given, expected = CONSTANT_FORMS[form]
    if form == "value":
        given = numpy_helper.from_array(given)
    nodes = [helper.make_node("Constant", [], ["c"], **{form: given}), helper.make_node("Neg", ["x"], ["y"])]
    model = read(make_model(nodes))
    assert [layer.op_type for layer in model.layers] == ["Neg"]
    constant = model.constants["c"]
    assert constant.dtype == np.asarray(expected).dtype
    assert constant.shape == np.shape(expected)
    np.testing.assert_array_equal(constant, expected)
    assert not constant.flags.writeable


@pytest.mark.parametrize("flat", [True, False])
def test_sparse_constants_become_dense(flat: bool) -> None:
    dense = np.zeros((3, 4), np.float32)
    dense[0, 1], dense[2, 3] = 5, 6
    indices = np.array([1, 11]) if flat else np.array([[0, 1], [2, 3]])
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([5, 6], np.float32), "s"), numpy_helper.from_array(indices), [3, 4]
    )
    proto = make_model(
        [helper.make_node("Constant", [], ["c"], sparse_value=sparse), helper.make_node("Neg", ["x"], ["y"])]
    )
    proto.graph.sparse_initializer.append(sparse)
    model = read(proto)
    np.testing.assert_array_equal(model.constants["c"], dense)
    np.testing.assert_array_equal(model.constants["s"], dense)


def test_an_initializer_listed_among_the_inputs_is_a_constant() -> None:
    weights = numpy_helper.from_array(np.ones(4, np.float32), "w")
    model = read(
        make_model([helper.make_node("Add", ["x", "w"], ["y"])], inputs=("x", "w"), initializer=[weights])
    )
    assert [item.name for item in model.inputs] == ["x"]
    assert list(model.constants) == ["w"]


def test_the_captures_of_a_subgraph_count_as_use() -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["late", "late"], ["out"])],
        "body",
        [],
        [helper.make_tensor_value_info("out", F, None)],
    )
    condition = numpy_helper.from_array(np.array(True), "condition")
    nodes = [
        helper.make_node("If", ["condition"], ["y"], then_branch=body, else_branch=body),
        helper.make_node("Relu", ["x"], ["late"]),
    ]
    model = read(make_model(nodes, initializer=[condition]))
    assert [layer.op_type for layer in model.layers] == ["Relu", "If"]
    assert model.layers[1].captures == ("late",)
    assert model.layers[1].dependencies == ("condition", "late")
    assert len([*model.walk()]) == 4
    assert len({layer.name for layer in model.walk()}) == 4


def test_a_subgraph_that_uses_what_nothing_defines_is_refused() -> None:
    body = helper.make_graph(
        [helper.make_node("Relu", ["nowhere"], ["out"], name="inner")],
        "body",
        [],
        [helper.make_tensor_value_info("out", F, None)],
    )
    node = helper.make_node("If", ["x"], ["y"], then_branch=body, else_branch=body, name="branching")
    with pytest.raises(ModelImportError, match="'branching'.*'nowhere'"):
        read(make_model([node]))


def test_inputs_of_a_loop_body_may_lack_a_type() -> None:
    body = onnx.GraphProto(name="body")
    body.input.extend([onnx.ValueInfoProto(name=name) for name in ("i", "go", "v")])
    body.output.extend([onnx.ValueInfoProto(name=name) for name in ("go2", "v2")])
    body.node.extend([helper.make_node("Identity", ["go"], ["go2"]), helper.make_node("Relu", ["v"], ["v2"])])
    model = read(make_model([helper.make_node("Loop", ["", "", "x"], ["y"], body=body)]))
    assert [item.dtype for item in model.layers[0].subgraphs[0].inputs] == [UNTYPED] * 3


def test_sequences_and_optionals_are_told_apart() -> None:
    proto = make_model([helper.make_node("Identity", ["x"], ["y"])])
    proto.graph.input.append(helper.make_tensor_sequence_value_info("s", TensorProto.INT64, ["n"]))
    optional = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.DOUBLE, [2]))
    proto.graph.input.append(helper.make_value_info("o", optional))
    _, sequence, optional_input = read(proto).inputs
    assert (sequence.kind, sequence.dtype, sequence.shape) == ("sequence", np.int64, ("n",))
    assert (optional_input.kind, optional_input.dtype, optional_input.shape) == ("optional", np.float64, (2,))


def functions_model() -> onnx.ModelProto:
    """y = scale2(scale2(x, factor=3), factor=default 2), where scale2 calls another function of opset 13."""
    double = helper.make_function(
        "own",
        "Times",
        ["a", "b"],
        ["c"],
        [helper.make_node("Mul", ["a", "b"], ["inner"]), helper.make_node("Identity", ["inner"], ["c"])],
        [helper.make_opsetid("", 13)],
    )
    constant = helper.make_node("Constant", [], ["factor"])
    reference_attribute = onnx.AttributeProto(name="value_float", type=onnx.AttributeProto.FLOAT)
    reference_attribute.ref_attr_name = "factor"
    constant.attribute.append(reference_attribute)
    scale = helper.make_function(
        "own",
        "Scale",
        ["a"],
        ["c"],
        [constant, helper.make_node("Times", ["a", "factor"], ["c"], domain="own")],
        [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)],
        attribute_protos=[helper.make_attribute("factor", 2.0)],
    )
    nodes = [
        helper.make_node("Scale", ["x"], ["m"], domain="own", name="one", factor=3.0),
        helper.make_node("Scale", ["m"], ["y"], domain="own", name="two"),
    ]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return make_model(nodes, opset_imports=imports, functions=[double, scale])


def test_functions_are_inlined() -> None:
    proto = functions_model()
    model = read(proto)
    assert [layer.op_type for layer in model.layers] == ["Mul", "Identity", "Mul", "Identity"]
    assert {layer.version for layer in model.layers} == {13}
    assert sorted(value.item() for value in model.constants.values()) == [2.0, 3.0]
    assert len({layer.name for layer in model.layers}) == 4

    # The same graph, written out again, must do what onnxruntime makes of the original.
    nodes = [helper.make_node(layer.op_type, layer.inputs, layer.outputs) for layer in model.layers]
    constants = [numpy_helper.from_array(value, name) for name, value in model.constants.items()]
    x = np.array([[1, -2, 3, 4]], np.float32)
    [flat] = reference.ReferenceEvaluator(make_model(nodes, initializer=constants)).run(None, {"x": x})
    proto.ir_version = 8
    [expected] = open_session(proto.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(flat, expected)
    np.testing.assert_array_equal(flat, x * 6)


def test_a_function_that_calls_itself_is_refused() -> None:
    again = helper.make_function(
        "own",
        "F",
        ["a"],
        ["b"],
        [helper.make_node("F", ["a"], ["b"], domain="own")],
        [helper.make_opsetid("own", 1)],
    )
    proto = make_model(
        [helper.make_node("F", ["x"], ["y"], domain="own")],
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("own", 1)],
        functions=[again],
    )
    with pytest.raises(ModelImportError, match="calls itself"):
        read(proto)


def test_functions_that_multiply_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty functions that each call the next twice would be 2**40 layers."""
    monkeypatch.setattr("engine.graph.importers.onnx_importer._MAX_LAYERS", 1000)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    functions = [
        helper.make_function(
            "own",
            f"F{i}",
            ["a"],
            ["c"],
            [helper.make_node(f"F{i + 1}", [v], [w], domain="own") for v, w in (("a", "b"), ("b", "c"))],
            imports,
        )
        for i in range(40)
    ]
    functions.append(
        helper.make_function("own", "F40", ["a"], ["c"], [helper.make_node("Neg", ["a"], ["c"])], imports)
    )
    with pytest.raises(ModelImportError, match="more than 1000 layers"):
        read(
            make_model(
                [helper.make_node("F0", ["x"], ["y"], domain="own")],
                opset_imports=imports,
                functions=functions,
            )
        )


@pytest.mark.parametrize(("opset", "words"), [(6, "convert_version"), (1000, "update onnx")])
def test_opsets_out_of_range_are_refused(opset: int, words: str) -> None:
    with pytest.raises(ModelImportError, match=f"opset {opset}.*{words}"):
        read(make_model([helper.make_node("Add", ["x", "x"], ["y"])], opset=opset))


def test_an_older_opset_is_read_where_the_operator_has_not_changed() -> None:
    (layer,) = read(make_model([helper.make_node("Relu", ["x"], ["y"])], opset=6)).layers
    assert layer.version == 7


@pytest.mark.parametrize("opset", [7, onnx.defs.onnx_opset_version()])
def test_opsets_at_both_ends_are_read(opset: int) -> None:
    assert read(make_model([helper.make_node("Relu", ["x"], ["y"])], opset=opset)).layers[0].version == opset


def test_all_unsupported_operators_are_listed_at_once() -> None:
    body = helper.make_graph(
        [helper.make_node("Sneaky", ["x"], ["out"], name="hidden")],
        "b",
        [],
        [helper.make_tensor_value_info("out", F, None)],
    )
    nodes = [
        helper.make_node("Fancy", ["x"], [f"f{i}"], name=f"fancy{i}", domain="com.vendor") for i in range(5)
    ]
    nodes += [helper.make_node("Relu", ["f0"], ["c"])]
    nodes += [helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.vendor", 1)]

    def supported(layer: Layer, _: object) -> str | None:
        assert layer.version == (1 if layer.domain else 17)
        return None if layer.op_type in ("Relu", "If") else "no such operator"

    with pytest.raises(ModelImportError) as caught:
        read(make_model(nodes, opset_imports=imports), name="net.onnx", supported=supported)
    message = str(caught.value)
    assert "net.onnx" in message
    assert "7 of the 9 layers" in message
    assert "com.vendor.Fancy (opset 1) x5" in message
    assert "'fancy0', 'fancy1', 'fancy2' and 2 more" in message
    assert "Sneaky (opset 17) x2" in message
    assert "Relu" not in message
    assert "Export" in message


def test_gaps_name_the_exporter_s_option_once() -> None:
    """onnxruntime's level ALL writes layers for one kind of processor."""
    domain = "com.microsoft.nchwc"
    nodes = [
        helper.make_node("ReorderInput", ["x"], ["a"], domain=domain),
        helper.make_node("MaxPool", ["a"], ["b"], domain=domain, kernel_shape=[1]),
        helper.make_node("BeamSearch", ["b"], ["y"], domain="com.microsoft"),
    ]
    imports = [helper.make_opsetid(d, 1) for d in (domain, "com.microsoft")]
    with pytest.raises(ModelImportError) as caught:
        read(make_model(nodes, opset_imports=imports), supported=lambda *_: "no such operator")
    message = str(caught.value)
    assert message.count("ORT_ENABLE_EXTENDED") == 1
    assert f"{domain}.MaxPool, {domain}.ReorderInput: saved by onnxruntime" in message
    assert "com.microsoft.BeamSearch: a whole search" in message


def test_a_supported_model_passes() -> None:
    assert read(make_model([helper.make_node("Relu", ["x"], ["y"])]), supported=lambda *_: None).layers


BROKEN_GRAPHS = {
    "undefined input": ([helper.make_node("Relu", ["nothing"], ["y"], name="r")], "'r'.*'nothing'"),
    "two producers": (
        [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["y"], name="second")],
        "'second'.*'y'",
    ),
    "missing output": ([helper.make_node("Relu", ["x"], ["z"])], "output 'y'"),
    "no operator": ([helper.make_node("", ["x"], ["y"], name="blank")], "'blank'.*no operator"),
    "foreign domain": ([helper.make_node("Op", ["x"], ["y"], domain="own")], "'own'.*version"),
    "constant without value": (
        [helper.make_node("Constant", [], ["c"], name="k"), helper.make_node("Relu", ["x"], ["y"])],
        "'k'",
    ),
}


@pytest.mark.parametrize("case", BROKEN_GRAPHS)
def test_broken_graphs_name_what_is_wrong(case: str) -> None:
    nodes, words = BROKEN_GRAPHS[case]
    with pytest.raises(ModelImportError, match=words):
        read(make_model(nodes))


def test_an_attribute_without_a_type_is_refused() -> None:
    node = helper.make_node("Relu", ["x"], ["y"], name="r")
    node.attribute.append(onnx.AttributeProto(name="odd"))
    with pytest.raises(ModelImportError, match="'r'.*'odd'"):
        read(make_model([node]))


def test_metadata_and_producer_are_kept() -> None:
    proto = make_model([helper.make_node("Relu", ["x"], ["y"])], producer_name="maker", producer_version="2")
    helper.set_model_props(proto, {"classes": "cat,dog"})
    model = read(proto)
    assert model.producer == "maker 2"
    assert model.metadata == {"classes": "cat,dog"}
    assert "maker 2" in model.summary()
