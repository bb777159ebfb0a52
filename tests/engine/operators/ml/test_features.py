"""Features, labels and linear models of ai.onnx.ml against onnxruntime, scikit-learn and plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, defs, helper
from sklearn.linear_model import LogisticRegression

from engine import ModelLoader
from engine.base.errors import ModelImportError, ShapeError
from engine.compiler.interpreter import interpret
from engine.operators import OPERATORS
from tests.engine.conftest import MakeWorker
from tests.onnx_cases import compare
from tests.peer import open_session

FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
NAN = float("nan")


def ml(
    op_type: str,
    arrays: list[np.ndarray],
    outputs: list[int],
    version: int = 3,
    dims: Any = None,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one layer; `outputs` are element types, `dims` the sizes of the first input."""
    names = [f"x{i}" for i in range(len(arrays))]
    infos = []
    for i, array in enumerate(arrays):
        kind = STRING if array.dtype == object else helper.np_dtype_to_tensor_dtype(array.dtype)
        shape = dims if dims is not None and i == 0 else array.shape
        infos.append(helper.make_tensor_value_info(names[i], kind, shape))
    made = [f"y{i}" for i in range(len(outputs))]
    node = helper.make_node(op_type, names, made, name="it", domain="ai.onnx.ml", **attributes)
    results = [helper.make_tensor_value_info(n, t, None) for n, t in zip(made, outputs, strict=True)]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)]
    graph = helper.make_graph([node], "one", infos, results)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def found(proto: onnx.ModelProto, arrays: list[np.ndarray]) -> list[Any]:
    """What the formulas yield."""
    model = ModelLoader.load(proto.SerializeToString())
    results = interpret(model, {f"x{i}": a for i, a in enumerate(arrays)})
    return [results[o.name] for o in model.outputs]


def agree(op_type: str, arrays: list[np.ndarray], outputs: list[int], **attributes: Any) -> list[Any]:
    """Compare with onnxruntime, and return the outputs."""
    proto = ml(op_type, arrays, outputs, **attributes)
    session = open_session(proto.SerializeToString())
    expected = session.run(None, {f"x{i}": a for i, a in enumerate(arrays)})
    actual = found(proto, arrays)
    for one, other in zip(actual, expected, strict=True):
        compare(one, other, 1e-5)
    return actual


def test_the_engine_has_every_operator() -> None:
    schemas = [s for s in defs.get_all_schemas_with_history() if s.domain == "ai.onnx.ml"]
    missing = set()
    for schema in schemas:
        operator = OPERATORS.find(schema.domain, schema.name, schema.since_version)
        if operator is None:
            missing.add(schema.name)
            continue
        assert set(schema.attributes) <= set(operator.attributes), schema.name
        assert len(schema.inputs) <= len(operator.inputs) or operator.variadic, schema.name
        for attribute in schema.attributes.values():
            if attribute.default_value.type:
                expected = helper.get_attribute_value(attribute.default_value)
                expected = expected.decode() if isinstance(expected, bytes) else expected
                assert operator.attributes[attribute.name] == expected, (schema.name, attribute.name)
    assert not missing


def test_a_model_may_use_this_domain_alone_and_no_version_that_nobody_knows(x: np.ndarray) -> None:
    proto = ml("Normalizer", [x], [FLOAT], norm="L1")
    del proto.opset_import[0]
    assert found(proto, [x])[0].shape == x.shape
    proto.opset_import[0].version = 99
    with pytest.raises(
        ModelImportError, match="uses version 99 of the opset 'ai.onnx.ml', and the engine reads 1 to"
    ):
        ModelLoader.load(proto.SerializeToString())


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(3).normal(size=(6, 4)).astype(np.float32)


# Features


@pytest.mark.parametrize("dtype", ["float32", "int64", "float64"])
def test_features_are_scaled(x: np.ndarray, dtype: str) -> None:
    rows = (x * 5).astype(dtype)
    agree("Scaler", [rows], [FLOAT], offset=[0.5, -1.0, 0.0, 2.0], scale=[1.0, 2.0, 0.25, -1.0])
    agree("Scaler", [rows], [FLOAT], offset=[0.5], scale=[3.0])


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_rows_are_normalised(x: np.ndarray, norm: str, dtype: str) -> None:
    x = (x * 5).astype(dtype)
    x[1] = 0
    x[2] = -abs(x[2]) - 1
    agree("Normalizer", [x], [FLOAT], norm=norm)


def test_missing_features_are_filled_in(x: np.ndarray) -> None:
    x[0, 1] = x[4, 2] = np.nan
    each = [1.0, 2.0, 3.0, 4.0]
    agree("Imputer", [x], [FLOAT], imputed_value_floats=each, replaced_value_float=NAN)
    x = np.round(np.nan_to_num(x))
    agree("Imputer", [x], [FLOAT], imputed_value_floats=[7.5], replaced_value_float=0.0)
    whole = x.astype(np.int64)
    agree("Imputer", [whole], [INT64], imputed_value_int64s=[1, 2, 3, 4], replaced_value_int64=-1)


def test_columns_are_picked(x: np.ndarray) -> None:
    for columns in (np.array([3, 0, 0]), np.array([[2]])):
        agree("ArrayFeatureExtractor", [x, columns], [FLOAT])
    agree("ArrayFeatureExtractor", [x[0], np.array([1, 3])], [FLOAT])
    words = np.array([["a", "b"], ["c", "d"]], object)
    constant = ml("ArrayFeatureExtractor", [words, np.array([1])], [STRING])
    constant.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "x1"))
    assert interpret(ModelLoader.load(constant.SerializeToString()), {"x0": words})["y0"].tolist() == [
        ["b"],
        ["d"],
    ]


def test_a_threshold_makes_features_binary(x: np.ndarray) -> None:
    agree("Binarizer", [x], [FLOAT], threshold=0.25)
    (whole,) = found(
        ml("Binarizer", [x.astype(np.int32)], [TensorProto.INT32], threshold=0.5), [x.astype(np.int32)]
    )
    np.testing.assert_array_equal(whole, (x.astype(np.int32) > 0.5).astype(np.int32))


def test_features_are_joined(x: np.ndarray) -> None:
    other = np.arange(12).reshape(6, 2)
    (joined,) = found(ml("FeatureVectorizer", [x, other], [FLOAT], inputdimensions=[4, 2]), [x, other])
    np.testing.assert_array_equal(joined, np.concatenate([x, other.astype(np.float32)], 1))


# Labels

WORDS = np.array([["a", "z"], ["c", "b"]], object)
FLOATS = np.array([1.0, -0.0, np.nan, 2.5], np.float32)
WHOLE = np.array([5, -3, 2**40, 7])
KEYS: dict[str, tuple[np.ndarray, Any]] = {
    "strings": (WORDS, ["a", "b", "c"]), "floats": (FLOATS, [2.5, 0.0, NAN]),
    "int64s": (WHOLE, [7, 2**40, 5]),
}  # fmt: skip
VALUES: dict[str, tuple[list[Any], dict[str, Any], int]] = {
    "strings": (["x", "y", "ä"], {"default_string": "none"}, STRING),
    "floats": ([0.5, -2.0, 1e9], {"default_float": 7.0}, FLOAT),
    "int64s": ([-4, 9, 2], {"default_int64": 77}, INT64),
}


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("default", [True, False])
def test_labels_are_encoded(keys: str, values: str, default: bool) -> None:
    arrays, listed = KEYS[keys]
    results, defaults, kind = VALUES[values]
    attributes = {f"keys_{keys}": listed, f"values_{values}": results, **(defaults if default else {})}
    # onnxruntime finds NaN from version 4 on.
    agree("LabelEncoder", [arrays], [kind], version=4 if keys == "floats" else 2, **attributes)


def test_labels_are_encoded_by_tensors() -> None:
    x = np.array([[3, 9], [-1, 4]], np.int32)
    attributes = {
        "keys_tensor": onnx.numpy_helper.from_array(np.array([4, 3], np.int32)),
        "values_tensor": onnx.numpy_helper.from_array(np.array([1.5, -2.5])),
        "default_tensor": onnx.numpy_helper.from_array(np.array([0.25])),
    }
    (y,) = found(ml("LabelEncoder", [x], [TensorProto.DOUBLE], version=4, **attributes), [x])
    assert y.dtype == np.float64
    assert y.tolist() == [[-2.5, 0.25], [0.25, 1.5]]
    (y,) = found(
        ml(
            "LabelEncoder",
            [x],
            [INT64],
            version=4,
            keys_tensor=attributes["keys_tensor"],
            values_int64s=[8, 9],
        ),
        [x],
    )
    assert y.tolist() == [[9, -1], [-1, 8]]


def test_the_first_label_encoder() -> None:
    classes = ["a", "b", "c"]
    agree("LabelEncoder", [WORDS], [INT64], version=1, classes_strings=classes, default_int64=42)
    agree(
        "LabelEncoder",
        [np.array([2, 0, 9])],
        [STRING],
        version=1,
        classes_strings=classes,
        default_string="?",
    )


def test_categories_map_both_ways() -> None:
    facts = {"cats_int64s": [3, -1], "cats_strings": ["a", "b"], "default_int64": 0, "default_string": "?"}
    agree("CategoryMapper", [WORDS], [INT64], **facts)
    agree("CategoryMapper", [np.array([-1, 3, 8])], [STRING], **facts)


def test_one_hot_rows() -> None:
    agree("OneHotEncoder", [WORDS], [FLOAT], cats_strings=["c", "a", "b"])
    agree("OneHotEncoder", [np.array([[5, 7], [1, 5]])], [FLOAT], cats_int64s=[7, 5])
    agree("OneHotEncoder", [np.array([7.0, 6.0], np.float32)], [FLOAT], cats_int64s=[7, 5])


# Linear models

TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_linear_models(x: np.ndarray, transform: str) -> None:
    w = np.random.default_rng(1).normal(size=12).tolist()
    facts = {"coefficients": w, "intercepts": [0.5, -0.25, 0.0], "post_transform": transform}
    agree("LinearRegressor", [x], [FLOAT], targets=3, **facts)
    labels = {"classlabels_ints": [4, 8, -1]}
    agree("LinearClassifier", [x], [INT64, FLOAT], **facts, **labels)
    agree("LinearClassifier", [x.astype(np.int64)], [INT64, FLOAT], **facts, **labels)
    agree("LinearClassifier", [x], [STRING, FLOAT], **facts, classlabels_strings=["a", "b", "c"])


def test_probit_is_the_normal_quantile() -> None:
    p = np.array([[0.01, 0.3, 0.5, 0.9, 0.999]], np.float32)
    facts: dict[str, Any] = {"coefficients": np.eye(5, dtype=np.float32).reshape(-1).tolist(), "targets": 5}
    (y,) = found(ml("LinearRegressor", [p], [FLOAT], post_transform="PROBIT", **facts), [p])
    np.testing.assert_allclose(y, [[-2.3263, -0.5244, 0.0, 1.2816, 3.0902]], atol=0.01)


def test_softmax_zero_keeps_zeros() -> None:
    scores = np.array([[1.0, 2.0, 0.0], [0.0, 0.0, 0.0]], np.float32)
    facts: dict[str, Any] = {"coefficients": np.eye(3, dtype=np.float32).reshape(-1).tolist(), "targets": 3}
    (y,) = found(ml("LinearRegressor", [scores], [FLOAT], post_transform="SOFTMAX_ZERO", **facts), [scores])
    a = np.exp(-1.0)
    np.testing.assert_allclose(y, [[a / (1 + a), 1 / (1 + a), 0], [0.5] * 3], atol=1e-6)


def test_two_classes_from_one_score(x: np.ndarray) -> None:
    facts: dict[str, Any] = {
        "coefficients": [0.5, -1.0, 2.0, 0.25],
        "intercepts": [0.1],
        "classlabels_ints": [4, 9],
    }
    score = x @ np.array(facts["coefficients"], np.float32) + 0.1
    agree("LinearClassifier", [x], [INT64, FLOAT], post_transform="LOGISTIC", **facts)
    labels, scores = found(ml("LinearClassifier", [x], [INT64, FLOAT], **facts), [x])
    np.testing.assert_array_equal(labels, np.where(score > 0, 9, 4))
    np.testing.assert_allclose(scores, np.stack([-score, score], 1), rtol=1e-5)


def trained(names: list[str]) -> tuple[LogisticRegression, dict[str, Any], np.ndarray]:
    """A classifier of scikit-learn, the attributes that say the same, and data."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(60, 5)).astype(np.float32)
    labels = np.array(names)[np.argmax(data[:, :3] + 0.2 * rng.normal(size=(60, 3)), 1)]
    model = LogisticRegression().fit(data, labels)
    facts = {
        "coefficients": model.coef_.astype(np.float32).reshape(-1).tolist(), "post_transform": "SOFTMAX",
        "intercepts": model.intercept_.astype(np.float32).tolist(),
        "classlabels_strings": model.classes_.tolist(),
    }  # fmt: skip
    return model, facts, data


@pytest.mark.spread
def test_a_trained_classifier_names_its_classes(channel: str, make_worker: MakeWorker) -> None:
    """Labels that are text: the position of the winner is read back, and nothing waits for it before."""
    model, facts, data = trained(["kick", "jump", "duck"])
    proto = ml("LinearClassifier", [data], [STRING, FLOAT], dims=("n", 5), **facts)
    worker = make_worker(ModelLoader.load(proto.SerializeToString()), channel, allow_fallback=True)

    @given(st.integers(1, 20), st.integers(0, 40))
    @settings(max_examples=6)
    def holds(count: int, start: int) -> None:
        rows = data[start : start + count]
        worker.schedule(rows)
        labels = worker.peek_output("y0").download_to_array()
        assert labels.tolist() == model.predict(rows).tolist()
        probabilities = worker.peek_output("y1").download_to_array()
        np.testing.assert_allclose(probabilities, model.predict_proba(rows), atol=1e-4)

    holds()


@pytest.mark.spread
def test_text_is_moved_by_its_positions(channel: str, make_worker: MakeWorker) -> None:
    """Whatever moves strings needs none of them: outputs make them from positions, and the plan is whole."""
    names = ["kick", "jump", "duck"]
    model, facts, data = trained(names)
    proto = ml("LinearClassifier", [data], [STRING, FLOAT], dims=("n", 5), **facts)
    classes = np.array(model.classes_, object)
    proto.graph.initializer.extend(
        [
            helper.make_tensor("classes", STRING, [3], [name.encode() for name in classes]),
            helper.make_tensor("column", INT64, [2], [-1, 1]),
        ]
    )
    proto.graph.node.extend(
        [
            helper.make_node("Reshape", ["y0", "column"], ["reshaped"]),
            helper.make_node("Identity", ["reshaped"], ["same"]),
            helper.make_node("ArgMax", ["y1"], ["best"], axis=1, keepdims=0),
            helper.make_node("Gather", ["classes", "best"], ["gathered"]),
            helper.make_node("ArrayFeatureExtractor", ["classes", "best"], ["extracted"],
                             domain="ai.onnx.ml"),
            helper.make_node("LabelEncoder", ["best"], ["encoded"], domain="ai.onnx.ml",
                             keys_int64s=[0, 1], values_strings=[*classes[:2]], default_string="other"),
        ]
    )  # fmt: skip
    made = ("same", "gathered", "extracted", "encoded")
    proto.graph.output.extend(helper.make_tensor_value_info(name, STRING, None) for name in made)
    worker = make_worker(ModelLoader.load(proto.SerializeToString()), channel, allow_fallback=True)
    for count in (5, 1, 5, 0):
        rows = data[:count]
        worker.schedule(rows)
        assert worker._latest is not None
        assert worker._latest.recorded.lowered.trace.stop is None
        expected = model.predict(rows).astype(object) if count else np.empty(0, object)
        found_ = {name: worker.peek_output(name) for name in ("y0", *made)}
        assert found_["same"].shape == (count, 1)
        arrays = {name: tensor.download_to_array() for name, tensor in found_.items()}
        assert {array.dtype for array in arrays.values()} == {np.dtype(object)}
        np.testing.assert_array_equal(arrays["y0"], expected)
        np.testing.assert_array_equal(arrays["same"], expected[:, None])
        np.testing.assert_array_equal(arrays["gathered"], expected)
        np.testing.assert_array_equal(arrays["extracted"], expected[None])
        others = np.where(expected == classes[2], "other", expected)
        np.testing.assert_array_equal(arrays["encoded"], others)
    worker.schedule(data[:5])
    kept = worker.copy_output("y0")
    worker.schedule(data[5:10])
    np.testing.assert_array_equal(kept.download_to_array(), model.predict(data[:5]))


@pytest.mark.spread
def test_text_that_a_layer_reads_is_read_back(channel: str, make_worker: MakeWorker) -> None:
    model, facts, data = trained(["kick", "jump", "duck"])
    proto = ml("LinearClassifier", [data], [STRING, FLOAT], dims=("n", 5), **facts)
    upper = helper.make_node("StringNormalizer", ["y0"], ["upper"], case_change_action="UPPER")
    proto.graph.node.append(upper)
    proto.graph.output.append(helper.make_tensor_value_info("upper", STRING, None))
    worker = make_worker(ModelLoader.load(proto.SerializeToString()), channel, allow_fallback=True)
    for begin in (0, 10):
        rows = data[begin : begin + 7]
        worker.schedule(rows)
        expected = model.predict(rows).tolist()
        assert worker.peek_output("upper").download_to_array().tolist() == [x.upper() for x in expected]
        assert worker.peek_output("y0").download_to_array().tolist() == expected


LAYERS: dict[str, dict[str, Any]] = {
    "Scaler": {"offset": [0.5, -1.0, 0.0], "scale": [1.0, 2.0, 0.25]},
    "Imputer": {"imputed_value_floats": [1.0, 2.0, 3.0], "replaced_value_float": 0.0},
    "Normalizer": {"norm": "L2"},
    "LabelEncoder": {"keys_floats": [0.0, 1.0, -2.5, 2.0], "values_floats": [5.0, 6.0, 7.0, 8.0]},
    "Binarizer": {"threshold": 0.5},
    "LinearRegressor": {"coefficients": [1.0, -1.0, 0.5] * 2, "targets": 2, "post_transform": "SOFTMAX_ZERO"},
}


@pytest.mark.spread
@pytest.mark.parametrize("op_type", LAYERS)
def test_every_backend(op_type: str, channel: str, make_worker: MakeWorker) -> None:
    proto = ml(op_type, [np.zeros((1, 3), np.float32)], [FLOAT], dims=("n", 3), **LAYERS[op_type])
    session = open_session(proto.SerializeToString())
    worker = make_worker(ModelLoader.load(proto.SerializeToString()), channel)

    @given(st.integers(0, 9), st.integers(0, 99))
    @settings(max_examples=6)
    def holds(count: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        x = rng.choice(np.array([0.0, 1.0, -2.5, 2.0, 0.75], np.float32), (count, 3))
        # No score is zero, of which SOFTMAX_ZERO makes NaN in onnxruntime.
        x[:, 0] += 0.1
        worker.schedule(x)
        (expected,) = (
            session.run(None, {"x0": x}) if count else (np.zeros((0, 2 if "Linear" in op_type else 3)),)
        )
        actual = worker.peek_output().download_to_array()
        np.testing.assert_allclose(actual, expected, atol=1e-5 if channel == "cpu" else 1e-4)

    holds()


@pytest.mark.parametrize(
    ("op_type", "x", "attributes", "message"),
    [
        ("Scaler", np.zeros((2, 3), np.float32), {"offset": [1.0, 2.0]}, "2 numbers as offset"),
        ("Imputer", np.zeros((2, 3), np.float32), {}, "0 numbers as imputed values"),
        ("Normalizer", np.zeros((2, 3), np.float32), {"norm": "L3"}, "norm MAX, L1 or L2"),
        ("LabelEncoder", WHOLE, {"keys_int64s": [1], "values_int64s": [1, 2]}, "1 keys for 2 values"),
        ("LabelEncoder", WHOLE, {"keys_strings": ["a"], "values_int64s": [1]}, "its keys are object"),
        ("LabelEncoder", WHOLE, {"keys_int64s": [1]}, "0 attributes for its values"),
        ("OneHotEncoder", WORDS, {"cats_strings": ["a"], "zeros": 0}, "none of its categories"),
        ("LinearRegressor", np.zeros((2, 3), np.float32), {"coefficients": [1.0] * 4}, "4 coefficients"),
        (
            "LinearRegressor", np.zeros(3, np.float32),
            {"coefficients": [1.0] * 3, "post_transform": "X"}, "one of NONE",
        ),
        (
            "LinearClassifier", np.zeros((2, 3), np.float32),
            {"coefficients": [1.0] * 9, "classlabels_ints": [1, 2]}, "has 2 labels for 3 columns",
        ),
        ("FeatureVectorizer", np.zeros((2, 3), np.float32), {"inputdimensions": [2]}, "inputdimensions"),
    ],
)  # fmt: skip
def test_wrong_use_is_refused(op_type: str, x: np.ndarray, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        found(ml(op_type, [x], [FLOAT, FLOAT] if "Classifier" in op_type else [FLOAT], **attributes), [x])
