"""Variants of conversions, and boosted trees, as ONNX."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import StringTensorType
from sklearn import (
    decomposition,
    ensemble,
    gaussian_process,
    linear_model,
    mixture,
    neighbors,
    neural_network,
    pipeline,
    svm,
    tree,
)

from tests.field.sources.sklearn_data import (
    CLASSES,
    COUNTS,
    DOCUMENTS,
    FEATURES,
    HOLED,
    NAMES,
    SENTIMENT,
    TARGETS,
    TEST_ROWS,
    TWO,
    Case,
    Fit,
    X,
)


def text_case(
    name: str, model: Any, documents: np.ndarray, y: np.ndarray = SENTIMENT, **options: Any
) -> Case:
    """A model of documents, one in each row; `options` are the vectorizer's."""
    first = model.steps[0][1] if isinstance(model, pipeline.Pipeline) else model

    def convert() -> Any:
        model.fit(DOCUMENTS, y)
        # By default onnxruntime takes en_US, which not every machine has.
        chosen = {id(first): {"locale": "C.UTF-8", **options}}
        return convert_sklearn(model, initial_types=[("text", StringTensorType([None, 1]))], options=chosen)

    return Case(name, convert, {"text": documents.reshape(-1, 1)})


def variants() -> Iterator[Fit]:
    """Options of the converter, old and new opsets, float64."""
    plain = {"zipmap": False}
    double, y = X.astype(np.float64), TARGETS[:, 0].astype(np.float64)
    forest = {"n_estimators": 5, "random_state": 0}
    yield Fit("knn_cdist", neighbors.KNeighborsClassifier(3), y=NAMES, options={"optim": "cdist"})
    yield Fit("knn_regressor_cdist", neighbors.KNeighborsRegressor(3), y=TARGETS, options={"optim": "cdist"})
    process = gaussian_process.GaussianProcessRegressor
    yield Fit("gaussian_process_cdist", process(random_state=0), double, y, {"optim": "cdist"})
    yield Fit("gaussian_process_std", process(random_state=0), double, y, {"return_std": True})
    yield Fit(
        "gaussian_mixture_scores", mixture.GaussianMixture(3, random_state=0), options={"score_samples": True}
    )
    yield Fit(
        "isolation_forest_scores",
        ensemble.IsolationForest(**forest),
        options={"score_samples": True},
        opset={"": 18, "ai.onnx.ml": 3},
    )
    yield Fit("forest_newest", ensemble.RandomForestRegressor(**forest), y=y, opset={"": 21, "ai.onnx.ml": 5})
    yield Fit(
        "forest_oldest", ensemble.RandomForestClassifier(**forest), y=NAMES, opset={"": 9, "ai.onnx.ml": 1}
    )
    yield Fit("logistic_oldest", linear_model.LogisticRegression(), y=NAMES, opset={"": 11, "ai.onnx.ml": 1})
    svc = svm.SVC(decision_function_shape="ovo")
    yield Fit("svc_pairs", svc, y=NAMES, options={"raw_scores": True, **plain})
    yield Fit("forest_double", ensemble.RandomForestClassifier(**forest), double, NAMES)
    yield Fit("pca_double", decomposition.PCA(3), double)
    mlp = neural_network.MLPClassifier((8,), max_iter=60, random_state=0)
    yield Fit("mlp_double", mlp, double, NAMES, plain)
    yield Fit("svc_double", svm.SVC(probability=True, random_state=0), double, NAMES, plain)
    yield Fit("knn_double", neighbors.KNeighborsClassifier(3), double, NAMES, plain)
    yield Fit("tree_integers", tree.DecisionTreeClassifier(max_depth=3, random_state=0), COUNTS, NAMES)
    yield Fit("logistic_integers", linear_model.LogisticRegression(max_iter=999), COUNTS, NAMES)
    yield Fit("bagging_svc", ensemble.BaggingClassifier(svm.SVC(), n_estimators=3, random_state=0), y=NAMES)


def boosters() -> Iterator[Case]:
    """Models of the boosting libraries that are installed, by the converters that their users take."""
    inputs = {"X": X[:TEST_ROWS]}
    if find_spec("xgboost"):
        import xgboost
        from onnxmltools import convert_xgboost
        from onnxmltools.convert.common.data_types import FloatTensorType as Floats

        def of_xgboost(model: Any, y: np.ndarray) -> Callable[[], Any]:
            return lambda: convert_xgboost(model.fit(X, y), initial_types=[("X", Floats([None, FEATURES]))])

        few = {"n_estimators": 7, "max_depth": 3, "random_state": 0, "n_jobs": 1}
        yield Case("xgb_classifier", of_xgboost(xgboost.XGBClassifier(**few), CLASSES), inputs)
        yield Case("xgb_classifier_two", of_xgboost(xgboost.XGBClassifier(**few), TWO), inputs)
        yield Case("xgb_rf_classifier", of_xgboost(xgboost.XGBRFClassifier(**few), TWO), inputs)
        yield Case("xgb_regressor", of_xgboost(xgboost.XGBRegressor(**few), TARGETS[:, 0]), inputs)
        yield Case(
            "xgb_poisson",
            of_xgboost(xgboost.XGBRegressor(objective="count:poisson", **few), COUNTS[:, 0]),
            inputs,
        )
        holed = {"X": HOLED[:TEST_ROWS]}
        yield Case("xgb_holed", of_xgboost(xgboost.XGBRegressor(**few), TARGETS[:, 1]), holed)
    if find_spec("lightgbm"):
        import lightgbm
        from onnxmltools import convert_lightgbm
        from onnxmltools.convert.common.data_types import FloatTensorType as Floats

        def of_lightgbm(model: Any, y: np.ndarray, **options: Any) -> Callable[[], Any]:
            types = [("X", Floats([None, FEATURES]))]
            return lambda: convert_lightgbm(model.fit(X, y), initial_types=types, **options)

        few = {"n_estimators": 7, "max_depth": 3, "random_state": 0, "n_jobs": 1, "verbose": -1}
        yield Case("lgbm_classifier", of_lightgbm(lightgbm.LGBMClassifier(**few), CLASSES), inputs)
        yield Case("lgbm_classifier_names", of_lightgbm(lightgbm.LGBMClassifier(**few), NAMES), inputs)
        yield Case(
            "lgbm_classifier_two_plain",
            of_lightgbm(lightgbm.LGBMClassifier(**few), TWO, zipmap=False),
            inputs,
        )
        yield Case("lgbm_regressor", of_lightgbm(lightgbm.LGBMRegressor(**few), TARGETS[:, 0]), inputs)
        yield Case(
            "lgbm_gamma",
            of_lightgbm(lightgbm.LGBMRegressor(objective="gamma", **few), np.exp(TARGETS[:, 0])),
            inputs,
        )
    if find_spec("catboost"):
        import catboost

        def of_catboost(model: Any, y: np.ndarray) -> Callable[[], Any]:
            def convert() -> Any:
                from catboost.utils import convert_to_onnx_object

                return convert_to_onnx_object(model.fit(X, y))

            return convert

        few = {"iterations": 7, "depth": 3, "random_seed": 0, "verbose": False, "allow_writing_files": False}
        inputs = {"features": X[:TEST_ROWS]}
        yield Case("cat_classifier", of_catboost(catboost.CatBoostClassifier(**few), CLASSES), inputs)
        yield Case("cat_classifier_names", of_catboost(catboost.CatBoostClassifier(**few), NAMES), inputs)
        yield Case("cat_classifier_two", of_catboost(catboost.CatBoostClassifier(**few), TWO), inputs)
        apart = catboost.CatBoostClassifier(loss_function="MultiClassOneVsAll", **few)
        yield Case("cat_classifier_apart", of_catboost(apart, CLASSES), inputs)
        yield Case("cat_regressor", of_catboost(catboost.CatBoostRegressor(**few), TARGETS[:, 0]), inputs)
