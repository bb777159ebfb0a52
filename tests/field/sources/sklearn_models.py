"""Models of scikit-learn, XGBoost, LightGBM and CatBoost, fitted to small seeded data and written as ONNX.

    python -m tests.field.sources.sklearn_models FOLDER

Needs scikit-learn, skl2onnx and onnxmltools; models of XGBoost, LightGBM and CatBoost are written where those
packages are installed. Each model is `NAME.onnx`, its inputs by name are `NAME.npz` (text as NumPy's `str`).
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from skl2onnx import convert_sklearn
from sklearn import (
    calibration,
    cluster,
    compose,
    cross_decomposition,
    decomposition,
    discriminant_analysis,
    ensemble,
    feature_extraction,
    feature_selection,
    gaussian_process,
    impute,
    linear_model,
    mixture,
    multiclass,
    multioutput,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    random_projection,
    svm,
    tree,
)

from tests.field.sources.sklearn_data import (
    CLASSES,
    COLORS,
    COUNTS,
    DOCUMENTS,
    HOLED,
    LABELS,
    MIXED,
    NAMES,
    SENTIMENT,
    TARGETS,
    TEST_ROWS,
    TWO,
    Case,
    Fit,
    X,
    mixed_table,
)
from tests.field.sources.sklearn_variants import boosters, text_case, variants


def classifiers() -> Iterator[Fit]:
    """Every family of classifiers, with numbers, names and two classes; with and without ZipMap."""
    plain = {"zipmap": False}
    yield Fit("logistic", linear_model.LogisticRegression(), y=CLASSES)
    yield Fit("logistic_names", linear_model.LogisticRegression(), y=NAMES)
    yield Fit("logistic_two", linear_model.LogisticRegression(), y=TWO)
    yield Fit("logistic_plain", linear_model.LogisticRegression(), y=CLASSES, options=plain)
    yield Fit("logistic_names_plain", linear_model.LogisticRegression(), y=NAMES, options=plain)
    yield Fit("logistic_columns", linear_model.LogisticRegression(), y=NAMES, options={"zipmap": "columns"})
    yield Fit(
        "logistic_raw", linear_model.LogisticRegression(), y=CLASSES, options={"raw_scores": True, **plain}
    )
    yield Fit("logistic_nocl", linear_model.LogisticRegression(), y=NAMES, options={"nocl": True, **plain})
    yield Fit(
        "logistic_class_labels",
        linear_model.LogisticRegression(),
        y=CLASSES,
        options={"output_class_labels": True, **plain},
    )
    yield Fit(
        "logistic_double", linear_model.LogisticRegression(), X.astype(np.float64), NAMES, options=plain
    )
    yield Fit(
        "logistic_cv",
        linear_model.LogisticRegressionCV(cv=3, use_legacy_attributes=False, l1_ratios=(0,)),
        y=CLASSES,
    )
    yield Fit("sgd_log", linear_model.SGDClassifier(loss="log_loss", random_state=0), y=NAMES)
    yield Fit(
        "sgd_hinge",
        linear_model.SGDClassifier(random_state=0),
        y=CLASSES,
        options={"raw_scores": True, **plain},
    )
    yield Fit("sgd_huber", linear_model.SGDClassifier(loss="modified_huber", random_state=0), y=CLASSES)
    yield Fit(
        "perceptron", linear_model.Perceptron(random_state=0), y=NAMES, options={"raw_scores": True, **plain}
    )
    yield Fit(
        "passive_aggressive",
        linear_model.PassiveAggressiveClassifier(random_state=0),
        y=CLASSES,
        options={"raw_scores": True, **plain},
    )
    yield Fit(
        "ridge_classifier", linear_model.RidgeClassifier(), y=NAMES, options={"raw_scores": True, **plain}
    )
    yield Fit(
        "ridge_classifier_cv", linear_model.RidgeClassifierCV(), y=TWO, options={"raw_scores": True, **plain}
    )
    yield Fit("linear_svc", svm.LinearSVC(random_state=0), y=NAMES)
    yield Fit("svc_rbf", svm.SVC(probability=True, random_state=0), y=NAMES)
    yield Fit("svc_linear_two", svm.SVC(kernel="linear", probability=True, random_state=0), y=TWO)
    yield Fit("svc_poly_raw", svm.SVC(kernel="poly"), y=CLASSES, options={"raw_scores": True, **plain})
    yield Fit(
        "nu_svc_sigmoid", svm.NuSVC(kernel="sigmoid", nu=0.3, probability=True, random_state=0), y=NAMES
    )
    yield Fit("lda_names", discriminant_analysis.LinearDiscriminantAnalysis(), y=NAMES)
    yield Fit("qda", discriminant_analysis.QuadraticDiscriminantAnalysis(), y=CLASSES)
    yield Fit("bernoulli_nb", naive_bayes.BernoulliNB(), y=NAMES)
    yield Fit("gaussian_nb", naive_bayes.GaussianNB(), y=NAMES)
    yield Fit("multinomial_nb", naive_bayes.MultinomialNB(), COUNTS, NAMES)
    yield Fit("complement_nb", naive_bayes.ComplementNB(), COUNTS, CLASSES)
    yield Fit("categorical_nb", naive_bayes.CategoricalNB(), COUNTS, NAMES)
    yield Fit("tree_classifier", tree.DecisionTreeClassifier(max_depth=4, random_state=0), y=NAMES)
    yield Fit(
        "tree_classifier_paths",
        tree.DecisionTreeClassifier(max_depth=4, random_state=0),
        y=NAMES,
        options={"decision_path": True, "decision_leaf": True, **plain},
    )
    yield Fit("extra_tree_classifier", tree.ExtraTreeClassifier(max_depth=4, random_state=0), y=CLASSES)
    yield Fit("forest_classifier", ensemble.RandomForestClassifier(9, max_depth=5, random_state=0), y=NAMES)
    yield Fit("forest_classifier_two", ensemble.RandomForestClassifier(9, random_state=0), y=TWO)
    yield Fit(
        "forest_multilabel", ensemble.RandomForestClassifier(9, random_state=0), y=LABELS, options=plain
    )
    yield Fit("extra_trees_classifier", ensemble.ExtraTreesClassifier(9, random_state=0), y=NAMES)
    yield Fit(
        "boosting_classifier", ensemble.GradientBoostingClassifier(n_estimators=9, random_state=0), y=NAMES
    )
    yield Fit(
        "boosting_classifier_two", ensemble.GradientBoostingClassifier(n_estimators=9, random_state=0), y=TWO
    )
    yield Fit("hist_boosting_classifier", ensemble.HistGradientBoostingClassifier(max_iter=9), y=NAMES)
    yield Fit("hist_boosting_holed", ensemble.HistGradientBoostingClassifier(max_iter=9), HOLED, TWO)
    yield Fit("ada_boost_classifier", ensemble.AdaBoostClassifier(n_estimators=9, random_state=0), y=NAMES)
    yield Fit("bagging_classifier", ensemble.BaggingClassifier(n_estimators=5, random_state=0), y=NAMES)
    members = [("a", linear_model.LogisticRegression()), ("b", naive_bayes.GaussianNB())]
    yield Fit(
        "voting_soft", ensemble.VotingClassifier(members, voting="soft", flatten_transform=False), y=NAMES
    )
    yield Fit(
        "voting_hard", ensemble.VotingClassifier(members, flatten_transform=False), y=NAMES, options=plain
    )
    yield Fit("stacking_classifier", ensemble.StackingClassifier(members, cv=3), y=NAMES)
    yield Fit(
        "calibrated_sigmoid", calibration.CalibratedClassifierCV(naive_bayes.GaussianNB(), cv=3), y=NAMES
    )
    yield Fit(
        "calibrated_isotonic",
        calibration.CalibratedClassifierCV(naive_bayes.GaussianNB(), method="isotonic", cv=3),
        y=CLASSES,
    )
    yield Fit("one_vs_rest", multiclass.OneVsRestClassifier(linear_model.LogisticRegression()), y=NAMES)
    yield Fit(
        "one_vs_rest_labels", multiclass.OneVsRestClassifier(linear_model.LogisticRegression()), y=LABELS
    )
    yield Fit(
        "one_vs_one",
        multiclass.OneVsOneClassifier(linear_model.LogisticRegression()),
        y=CLASSES,
        options=plain,
    )
    yield Fit(
        "multi_output_classifier",
        multioutput.MultiOutputClassifier(linear_model.LogisticRegression()),
        y=LABELS,
        options=plain,
    )
    yield Fit("mlp_classifier", neural_network.MLPClassifier((8,), max_iter=60, random_state=0), y=NAMES)
    yield Fit("mlp_classifier_two", neural_network.MLPClassifier((8,), max_iter=60, random_state=0), y=TWO)
    yield Fit("knn_classifier", neighbors.KNeighborsClassifier(3), y=NAMES)
    yield Fit("knn_classifier_weighted", neighbors.KNeighborsClassifier(3, weights="distance"), y=CLASSES)
    yield Fit("knn_multilabel", neighbors.KNeighborsClassifier(3), y=LABELS, options=plain)


def regressors() -> Iterator[Fit]:
    """Regressors of every family, of one and of three targets."""
    y = TARGETS[:, 0]
    for name in (
        "LinearRegression",
        "Ridge",
        "RidgeCV",
        "Lasso",
        "LassoCV",
        "ElasticNet",
        "BayesianRidge",
        "ARDRegression",
        "HuberRegressor",
        "Lars",
        "LassoLars",
        "LassoLarsIC",
        "OrthogonalMatchingPursuit",
        "SGDRegressor",
        "TheilSenRegressor",
        "RANSACRegressor",
        "PassiveAggressiveRegressor",
        "QuantileRegressor",
        "PoissonRegressor",
        "GammaRegressor",
        "TweedieRegressor",
    ):
        positive = name in ("PoissonRegressor", "GammaRegressor", "TweedieRegressor")
        yield Fit(f"linear_{name}", getattr(linear_model, name)(), y=np.exp(y) if positive else y)
    yield Fit("linear_double", linear_model.LinearRegression(), X.astype(np.float64), TARGETS)
    yield Fit("linear_targets", linear_model.MultiTaskLasso(alpha=0.01), y=TARGETS)
    yield Fit("svr", svm.SVR(), y=y)
    yield Fit("nu_svr", svm.NuSVR(kernel="poly"), y=y)
    yield Fit("linear_svr", svm.LinearSVR(random_state=0), y=y)
    yield Fit("tree_regressor", tree.DecisionTreeRegressor(max_depth=5, random_state=0), y=y)
    yield Fit("forest_regressor", ensemble.RandomForestRegressor(9, random_state=0), y=TARGETS)
    yield Fit("extra_trees_regressor", ensemble.ExtraTreesRegressor(9, random_state=0), y=y)
    yield Fit("boosting_regressor", ensemble.GradientBoostingRegressor(n_estimators=9, random_state=0), y=y)
    yield Fit("hist_boosting_regressor", ensemble.HistGradientBoostingRegressor(max_iter=9), HOLED, y)
    yield Fit("ada_boost_regressor", ensemble.AdaBoostRegressor(n_estimators=5, random_state=0), y=y)
    yield Fit("bagging_regressor", ensemble.BaggingRegressor(n_estimators=5, random_state=0), y=y)
    members = [("a", linear_model.LinearRegression()), ("b", tree.DecisionTreeRegressor(max_depth=3))]
    yield Fit("voting_regressor", ensemble.VotingRegressor(members), y=y)
    yield Fit("stacking_regressor", ensemble.StackingRegressor(members, cv=3), y=y)
    yield Fit("multi_output_regressor", multioutput.MultiOutputRegressor(linear_model.Ridge()), y=TARGETS)
    yield Fit(
        "mlp_regressor",
        neural_network.MLPRegressor(hidden_layer_sizes=(8,), max_iter=60, random_state=0),
        y=TARGETS,
    )
    yield Fit("knn_regressor", neighbors.KNeighborsRegressor(3), y=TARGETS)
    yield Fit(
        "knn_regressor_manhattan",
        neighbors.KNeighborsRegressor(3, metric="manhattan", weights="distance"),
        y=y,
    )
    yield Fit(
        "gaussian_process_regressor",
        gaussian_process.GaussianProcessRegressor(
            gaussian_process.kernels.RBF() + gaussian_process.kernels.WhiteKernel(), random_state=0
        ),
        X.astype(np.float64),
        y.astype(np.float64),
    )
    yield Fit("pls_regression", cross_decomposition.PLSRegression(2), y=TARGETS)


def transformers() -> Iterator[Fit]:
    """Clusters, outliers, decompositions, feature selection and preprocessing."""
    y = CLASSES
    yield Fit("k_means", cluster.KMeans(3, n_init=2, random_state=0))
    yield Fit("mini_batch_k_means", cluster.MiniBatchKMeans(3, n_init=2, random_state=0))
    yield Fit("gaussian_mixture", mixture.GaussianMixture(3, random_state=0))
    yield Fit("bayesian_mixture", mixture.BayesianGaussianMixture(n_components=3, random_state=0))
    yield Fit(
        "isolation_forest",
        ensemble.IsolationForest(n_estimators=9, random_state=0),
        opset={"": 18, "ai.onnx.ml": 3},
    )
    yield Fit("local_outlier_factor", neighbors.LocalOutlierFactor(5, novelty=True))
    yield Fit("one_class_svm", svm.OneClassSVM())
    yield Fit("sgd_one_class", linear_model.SGDOneClassSVM(random_state=0))
    yield Fit("pca", decomposition.PCA(3))
    yield Fit("pca_white", decomposition.PCA(3, whiten=True))
    yield Fit("incremental_pca", decomposition.IncrementalPCA(3))
    yield Fit("kernel_pca", decomposition.KernelPCA(3, kernel="rbf"))
    yield Fit("truncated_svd", decomposition.TruncatedSVD(3, random_state=0))
    yield Fit("gaussian_projection", random_projection.GaussianRandomProjection(3, random_state=0))
    yield Fit("neighborhood_components", neighbors.NeighborhoodComponentsAnalysis(2, random_state=0), y=y)
    yield Fit("nearest_neighbors", neighbors.NearestNeighbors(n_neighbors=3, radius=None))
    yield Fit("knn_imputer", impute.KNNImputer(n_neighbors=3), HOLED)
    yield Fit("simple_imputer", impute.SimpleImputer(), HOLED)
    yield Fit(
        "simple_imputer_text",
        impute.SimpleImputer(strategy="most_frequent", missing_values="red"),
        COLORS.astype(object),
    )
    yield Fit("binarizer", preprocessing.Binarizer(threshold=0.2))
    yield Fit("function_transformer", preprocessing.FunctionTransformer())
    yield Fit("k_bins", preprocessing.KBinsDiscretizer(4, encode="ordinal"))
    yield Fit("k_bins_onehot", preprocessing.KBinsDiscretizer(4, encode="onehot-dense"))
    yield Fit("label_binarizer", preprocessing.LabelBinarizer(), NAMES)
    yield Fit("label_encoder", preprocessing.LabelEncoder(), NAMES)
    yield Fit("label_encoder_numbers", preprocessing.LabelEncoder(), COUNTS[:, 0])
    yield Fit("max_abs_scaler", preprocessing.MaxAbsScaler())
    yield Fit("min_max_scaler", preprocessing.MinMaxScaler(clip=True))
    yield Fit("normalizer_l1", preprocessing.Normalizer("l1"))
    yield Fit("one_hot_text", preprocessing.OneHotEncoder(handle_unknown="ignore"), COLORS)
    yield Fit("one_hot_numbers", preprocessing.OneHotEncoder(drop="first"), COUNTS)
    yield Fit("ordinal_text", preprocessing.OrdinalEncoder(), COLORS)
    yield Fit(
        "ordinal_unknown",
        preprocessing.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
        COUNTS,
    )
    yield Fit("polynomial", preprocessing.PolynomialFeatures(3))
    yield Fit("power", preprocessing.PowerTransformer())
    yield Fit("quantile", preprocessing.QuantileTransformer(n_quantiles=20))
    yield Fit("robust_scaler", preprocessing.RobustScaler())
    yield Fit("standard_scaler", preprocessing.StandardScaler())
    yield Fit("standard_scaler_double", preprocessing.StandardScaler(), X.astype(np.float64))
    yield Fit(
        "target_encoder", preprocessing.TargetEncoder(cv=3, target_type="continuous"), COLORS, TARGETS[:, 0]
    )
    yield Fit(
        "random_trees_embedding",
        ensemble.RandomTreesEmbedding(4, max_depth=3, random_state=0, sparse_output=False),
    )
    yield Fit("generic_univariate", feature_selection.GenericUnivariateSelect(mode="k_best", param=3), y=y)
    yield Fit("select_k_best", feature_selection.SelectKBest(k=3), y=y)
    yield Fit("select_percentile", feature_selection.SelectPercentile(percentile=40), y=y)
    yield Fit("select_fdr", feature_selection.SelectFdr(), y=y)
    yield Fit("select_from_model", feature_selection.SelectFromModel(linear_model.LogisticRegression()), y=y)
    yield Fit("rfe", feature_selection.RFE(linear_model.LogisticRegression(), n_features_to_select=3), y=y)
    yield Fit("variance_threshold", feature_selection.VarianceThreshold(0.9))


def pipelines() -> Iterator[Case]:
    """Text, mixed columns, dictionaries, unions of features."""
    text = feature_extraction.text
    vectorizers = {
        "count": text.CountVectorizer(),
        "count_binary_upper": text.CountVectorizer(lowercase=False, binary=True),
        "count_bigrams": text.CountVectorizer(ngram_range=(1, 2), stop_words=["the", "a"]),
        "count_tokens": text.CountVectorizer(token_pattern=r"[a-zA-Z0-9]+"),
        "count_characters": text.CountVectorizer(analyzer="char", ngram_range=(1, 2)),
        "tfidf": text.TfidfVectorizer(),
        "tfidf_sublinear": text.TfidfVectorizer(sublinear_tf=True, norm="l1"),
        "tfidf_pattern": text.TfidfVectorizer(token_pattern=r"\b[a-z ]+\b", ngram_range=(1, 1)),
    }
    documents = DOCUMENTS[:TEST_ROWS]
    for name, vectorizer in vectorizers.items():
        yield text_case(f"text_{name}", vectorizer, documents)
    for name, last in {
        "logistic": linear_model.LogisticRegression(),
        "bayes": naive_bayes.MultinomialNB(),
        "forest": ensemble.RandomForestClassifier(5, random_state=0),
        "topics": decomposition.TruncatedSVD(2, random_state=0),
    }.items():
        yield text_case(
            f"text_pipeline_{name}", pipeline.make_pipeline(text.TfidfVectorizer(), last), documents
        )
    variants: dict[str, dict[str, Any]] = {
        "empty": {"keep_empty_string": True},
        "separators": {"separators": [" ", "[.]", "-"]},
        "expression": {"tokenexp": "[a-zA-Z]+"},
        "nan": {"nan": True},
    }
    for name, options in variants.items():
        yield text_case(f"text_option_{name}", text.TfidfVectorizer(), documents, **options)
    for name, signs in (("signed", True), ("unsigned", False)):
        hasher = feature_extraction.FeatureHasher(8, input_type="string", alternate_sign=signs)
        yield Fit(f"hasher_{name}", hasher, COLORS).case()
    names = np.array(["bad", "good"])[SENTIMENT]
    yield text_case(
        "text_pipeline_names",
        pipeline.make_pipeline(
            text.CountVectorizer(), text.TfidfTransformer(), linear_model.LogisticRegression()
        ),
        documents,
        names,
    )

    table = mixed_table()
    inputs = {name: table[[name]].to_numpy()[:TEST_ROWS] for name in table}
    inputs["color"] = inputs["color"].astype(str)

    def columns(last: Any, y: np.ndarray, **options: Any) -> Callable[[], Any]:
        def convert() -> Any:
            numbers = pipeline.make_pipeline(impute.SimpleImputer(), preprocessing.StandardScaler())
            front = compose.ColumnTransformer(
                [
                    ("numbers", numbers, ["height", "age"]),
                    ("categories", preprocessing.OneHotEncoder(handle_unknown="ignore"), ["color"]),
                ]
            )
            model = pipeline.Pipeline([("front", front), ("last", last)]).fit(table, y)
            return convert_sklearn(
                model, initial_types=list(MIXED.items()), options={id(last): options} if options else None
            )

        return convert

    yield Case("columns_logistic", columns(linear_model.LogisticRegression(), NAMES), inputs)
    yield Case(
        "columns_forest",
        columns(ensemble.RandomForestClassifier(5, random_state=0), CLASSES, zipmap=False),
        inputs,
    )
    yield Case("columns_regression", columns(linear_model.Ridge(), TARGETS[:, 0]), inputs)

    union = pipeline.make_union(decomposition.PCA(2), preprocessing.StandardScaler())
    yield Fit("union", union).case()
    scaled_svc = pipeline.make_pipeline(
        preprocessing.StandardScaler(), svm.SVC(probability=True, random_state=0)
    )
    yield Fit("pipeline_svc", scaled_svc, y=NAMES).case()
    doubled = pipeline.make_pipeline(
        preprocessing.StandardScaler(), ensemble.RandomForestClassifier(5, random_state=0)
    )
    yield Fit("pipeline_forest_double", doubled, X.astype(np.float64), NAMES).case()


def cases() -> Iterator[Case]:
    """All of them."""
    for fit in (*classifiers(), *regressors(), *transformers(), *variants()):
        yield fit.case()
    yield from pipelines()
    yield from boosters()


def build(folder: Path) -> None:
    """Write every model and its inputs. `NAME.failed` says why a model's converter refuses it."""
    folder.mkdir(parents=True, exist_ok=True)
    for case in cases():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                proto = case.convert()
        except Exception as error:  # noqa: BLE001 - converters raise whatever they meet
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            message = f"its converter refuses it: {first[:150]}"
            (folder / f"{case.name}.failed").write_text(message, encoding="utf-8")
            continue
        (folder / f"{case.name}.onnx").write_bytes(proto.SerializeToString())
        inputs = {n: a.astype(str) if a.dtype.kind in "OU" else a for n, a in case.inputs.items()}
        np.savez(folder / f"{case.name}.npz", allow_pickle=False, **inputs)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
