"""Support vector machines that scikit-learn has trained, against onnxruntime and scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.svm import SVC, SVR, OneClassSVM

from engine import ModelLoader
from engine.base.errors import ShapeError
from tests.engine.conftest import MakeWorker
from tests.engine.operators.ml.test_features import FLOAT, INT64, STRING, agree, found, ml
from tests.peer import open_session

KERNELS: list[dict[str, Any]] = [
    {"kernel": "linear"}, {"kernel": "rbf", "gamma": 0.4}, {"kernel": "sigmoid", "gamma": 0.1, "coef0": 0.2},
    {"kernel": "poly", "gamma": 0.3, "coef0": 1.0, "degree": 3},
    {"kernel": "poly", "gamma": 0.3, "degree": 2},
]  # fmt: skip


def points(classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random points and the class of each."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(80, 4)).astype(np.float32)
    return x, np.argmax(x[:, :classes] + 0.3 * rng.normal(size=(80, classes)), 1)


def floats(array: np.ndarray) -> list[float]:
    return [float(v) for v in np.asarray(array, np.float32).reshape(-1)]


def attributes_of(model: Any) -> dict[str, Any]:
    """What a trained model's attributes say of its kernel and support vectors."""
    return {
        "kernel_type": model.kernel.upper(),
        "kernel_params": [model._gamma, model.coef0, float(model.degree)],
        "support_vectors": floats(model.support_vectors_), "coefficients": floats(model._dual_coef_),
        "rho": floats(model._intercept_),
    }  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_regressors(kernel: dict[str, Any]) -> None:
    x, _ = points(2)
    model = SVR(**kernel).fit(x, x[:, 0] * x[:, 1])
    facts = attributes_of(model) | {"n_supports": len(model.support_)}
    (y,) = agree("SVMRegressor", [x], [FLOAT], **facts)
    np.testing.assert_allclose(y[:, 0], model.predict(x), atol=1e-4)
    outliers = OneClassSVM(**kernel).fit(x)
    facts = attributes_of(outliers) | {"n_supports": len(outliers.support_), "one_class": 1}
    # On the boundary the last bit decides.
    distance = abs(outliers.decision_function(x))
    x = x[distance > 0.01 * distance.max()]
    (y,) = agree("SVMRegressor", [x], [FLOAT], **facts)
    np.testing.assert_array_equal(y[:, 0], outliers.predict(x))


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
def test_classifiers(kernel: dict[str, Any], classes: int, transform: str) -> None:
    x, y = points(classes)
    model = SVC(**kernel, decision_function_shape="ovo").fit(x, y)
    facts = attributes_of(model) | {
        "vectors_per_class": model.n_support_.tolist(), "classlabels_ints": [*range(5, 5 + classes)],
        "post_transform": transform,
    }  # fmt: skip
    labels, _ = agree("SVMClassifier", [x], [INT64, FLOAT], **facts)
    np.testing.assert_array_equal(labels - 5, model.predict(x))


def probable(classes: int) -> tuple[np.ndarray, dict[str, Any]]:
    """A classifier with a sigmoid for each pair of classes, and points."""
    x, y = points(classes)
    model = SVC(gamma=0.4).fit(x, y)
    pairs = classes * (classes - 1) // 2
    rng = np.random.default_rng(classes)
    return x, attributes_of(model) | {
        "vectors_per_class": model.n_support_.tolist(), "prob_a": floats(-1.5 - rng.random(pairs)),
        "prob_b": floats(rng.normal(0, 0.2, pairs)), "classlabels_strings": list("abcd"[:classes]),
    }  # fmt: skip


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_probabilities(classes: int) -> None:
    x, facts = probable(classes)
    _, scores = agree("SVMClassifier", [x], [STRING, FLOAT], **facts)
    np.testing.assert_allclose(scores.sum(1), 1, atol=1e-5)


def test_a_linear_model_without_support_vectors() -> None:
    x, _ = points(3)
    rng = np.random.default_rng(5)
    facts = {"rho": [0.25], "kernel_params": [0.0] * 3}
    w = floats(rng.normal(size=12))
    agree("SVMClassifier", [x], [INT64, FLOAT], coefficients=w, classlabels_ints=[7, 8, 9], **facts)
    agree("SVMRegressor", [x], [FLOAT], coefficients=w[:4], **facts)


@pytest.mark.spread
def test_every_backend(channel: str, make_worker: MakeWorker) -> None:
    x, facts = probable(3)
    proto = ml("SVMClassifier", [x], [STRING, FLOAT], dims=("n", 4), **facts)
    expected = open_session(proto.SerializeToString()).run(None, {"x0": x})
    worker = make_worker(ModelLoader.load(proto.SerializeToString()), channel, allow_fallback=True)
    for rows in (slice(0, 80), slice(3, 4), slice(0, 0)):
        worker.schedule(x[rows])
        assert worker.peek_output("y0").download_to_array().tolist() == expected[0][rows].tolist()
        np.testing.assert_allclose(worker.peek_output("y1").download_to_array(), expected[1][rows], atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kernel_type": "COSINE"}, "a kernel_type of LINEAR, POLY, RBF, SIGMOID"),
        ({"kernel_params": [1.0]}, "three kernel_params"),
        ({"support_vectors": [1.0] * 7}, "has 7 numbers for 2 support vectors"),
        ({"support_vectors": [1.0] * 6}, "takes 3 features"),
        ({"coefficients": [1.0]}, "has 1 coefficients"),
    ],
)
def test_wrong_use_is_refused(changes: dict[str, Any], message: str) -> None:
    facts: dict[str, Any] = {
        "n_supports": 2,
        "support_vectors": [1.0] * 8,
        "coefficients": [1.0, -1.0],
        "rho": [0.0],
    }
    x = np.zeros((2, 4), np.float32)
    with pytest.raises(ShapeError, match=message):
        found(ml("SVMRegressor", [x], [FLOAT], **facts | changes), [x])
