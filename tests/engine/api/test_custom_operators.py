"""Operators of a game's own: they load and run on every backend; wrong declarations are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest

import gameglue.kernels
from engine import (
    InputError,
    Model,
    ModelImportError,
    ModelLoader,
    ShapeError,
    UnsupportedLayerError,
    numpy_operator,
    operator,
    remove_operator,
)
from engine.operators import OPERATORS
from gameglue.kernels import Builder, Expr, Value, arg, cast, lit, reduce, tanh
from tests.engine.conftest import MakeWorker, answers

DOMAIN = "test.custom"
X = np.array([[-2.0, -0.5, 3.0], [1.0, 0.25, -1.0]], np.float32)


@pytest.fixture(autouse=True)
def _no_operators_left() -> Iterator[None]:
    before = len(list(OPERATORS))
    yield
    for name in {op.name for op in OPERATORS if op.domain == DOMAIN}:
        remove_operator(name, domain=DOMAIN)
    assert len(list(OPERATORS)) == before


def net(body: str, version: int = 1) -> Model:
    """A model of one float input x and one output y."""
    proto = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 18, "{DOMAIN}" : {version}]>'
        f"net (float[n, m] x) => (float y) {{ {body} }}"
    )
    return ModelLoader.load(proto.SerializeToString())


def answer(make_worker: MakeWorker, model: Model, channel: str) -> np.ndarray:
    """What the backend makes of `X`, without the CPU's help."""
    return np.asarray(answers(make_worker(model, channel), X)[0])


def test_a_formula_runs_on_every_backend(channel: str, make_worker: MakeWorker) -> None:
    @operator("Swirl", domain=DOMAIN)
    def swirl(k: Builder, x: Value, *, alpha: float = 1.0) -> Value:
        return k.elementwise(lambda v: v * tanh(v * arg(alpha, x.arithmetic)), x)

    @operator("CountAbove", domain=DOMAIN, precision="exact")
    def count_above(k: Builder, x: Value, *, limit: float) -> Value:
        """How many entries of each row are above the limit."""

        def count(row: Expr) -> Expr:
            return reduce("sum", x.dim(1), lambda c: cast(x[row, c] > arg(limit, "float32"), "float32"))

        return k.compute(x.shape[:1], x.dtype, count)

    swirled = answer(make_worker, net(f"y = {DOMAIN}.Swirl <alpha = 0.5> (x)"), channel)
    np.testing.assert_allclose(swirled, X * np.tanh(X / 2), atol=1e-5)
    counts = answer(make_worker, net(f"a = Neg (x) y = {DOMAIN}.CountAbove <limit = 0.0> (a)"), channel)
    np.testing.assert_array_equal(counts, [2.0, 1.0])


def test_a_numpy_function_runs_beside_every_backend(channel: str, make_worker: MakeWorker) -> None:
    @numpy_operator("SortRows", domain=DOMAIN)
    def sort_rows(x: np.ndarray, bias: np.ndarray | None = None, *, reverse: int = 0) -> np.ndarray:
        rows = np.sort(x, axis=1)
        return rows[:, ::-1].copy() if reverse else rows

    model = net(f"a = Neg (x) b = {DOMAIN}.SortRows <reverse = 1> (a) y = Neg (b)")
    worker = make_worker(model, channel, allow_fallback=True)
    np.testing.assert_array_equal(answers(worker, X)[0], np.sort(X, axis=1))
    fallbacks = [f.op_type for f in worker.plan_report().fallbacks]
    assert fallbacks == ([] if channel == "cpu" else ["SortRows"])
    if channel != "cpu":
        with pytest.raises(UnsupportedLayerError, match="SortRows"):
            answer(make_worker, model, channel)


def test_versions_have_their_own_definitions() -> None:
    @operator("Step", domain=DOMAIN, since=1, until=2)
    def step_1(k: Builder, x: Value) -> Value:
        return k.elementwise(lambda v: v + 1.0, x)

    @operator("Step", domain=DOMAIN, since=3)
    def step_3(k: Builder, x: Value, *, size: float) -> Value:
        return k.elementwise(lambda v: v + arg(size, "float32"), x)

    assert net(f"y = {DOMAIN}.Step (x)", version=2)
    with pytest.raises(ModelImportError, match="lacks its attribute size"):
        net(f"y = {DOMAIN}.Step (x)", version=3)
    with pytest.raises(InputError, match="is declared twice: Step is already defined for opset 1 to 2"):
        operator("Step", domain=DOMAIN, since=2, until=2)(step_1)


def test_an_operator_is_declared_once() -> None:
    def same(k: Builder, x: Value) -> Value:
        return x

    operator("Same", domain=DOMAIN)(same)
    with pytest.raises(InputError, match=r"operator test.custom.Same is declared twice.*remove_operator"):
        operator("Same", domain=DOMAIN)(same)
    with pytest.raises(InputError, match="is declared twice"):
        numpy_operator("Same", domain=DOMAIN)(lambda x: x)
    remove_operator("Same", domain=DOMAIN)
    with pytest.raises(ModelImportError, match=r"no such operator(?s:.*)declare .* with gameglue.operator"):
        net(f"y = {DOMAIN}.Same (x)")
    numpy_operator("Same", domain=DOMAIN)(lambda x: x)
    assert net(f"y = {DOMAIN}.Same (x)")


@pytest.mark.parametrize("domain", ["", "ai.onnx"])
def test_the_engine_s_own_operators_stay(domain: str) -> None:
    with pytest.raises(InputError, match="the engine has an operator Relu itself; give yours a domain"):
        operator("Relu", domain=domain, since=1000)(lambda k, x: x)
    with pytest.raises(InputError, match="no operator Relu was declared here"):
        remove_operator("Relu", domain=domain)


def no_builder() -> None: ...


def takes_anything(k: Builder, x: Value, **attributes: object) -> Value:
    return x


def keywords_first(*, x: Value) -> Value:
    return x


def positional_attribute(k: Builder, x: Value, axis: int = 1) -> Value:
    return x


def shared_default(k: Builder, x: Value, *, axes: list[int] = []) -> Value:  # noqa: B006
    return x


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (no_builder, r"needs a first parameter for the Builder: \(k, x, ...\)"),
        (keywords_first, "needs a first parameter for the Builder"),
        (takes_anything, r"name its attributes one by one after a \*, instead of \*\*attributes"),
        (positional_attribute, r"input axis has the default 1; .* attributes come after a \*"),
        (shared_default, r"attribute axes has the default \[\]; it may be a number"),
        (Value, "a function declares it, not <class"),
        (3, "a function declares it, not 3"),
    ],
)
def test_a_wrong_signature_is_refused(define: Callable[..., Any], message: str) -> None:
    with pytest.raises(InputError, match="operator test.custom.Wrong: .*" + message):
        operator("Wrong", domain=DOMAIN)(define)


def test_wrong_facts_are_refused() -> None:
    def same(k: Builder, x: Value) -> Value:
        return x

    with pytest.raises(InputError, match="needs a name and a domain"):
        operator("", domain=DOMAIN)(same)
    with pytest.raises(InputError, match="no version is between since=4 and until=3"):
        operator("Wrong", domain=DOMAIN, since=4, until=3)(same)
    with pytest.raises(InputError, match="host names 'sizes', which is no input of it"):
        operator("Wrong", domain=DOMAIN, host=("sizes",))(same)
    with pytest.raises(InputError, match="host is a tuple of names, not 'x'"):
        operator("Wrong", domain=DOMAIN, host="x")(same)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no precision 'fair'; there are 'exact', 'rounding', 'random'"):
        operator("Wrong", domain=DOMAIN, precision="fair")(same)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="versions are whole numbers, not since='1'"):
        operator("Wrong", domain=DOMAIN, since="1")(same)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"instead of \*\*more"):
        numpy_operator("Wrong", domain=DOMAIN)(lambda x, **more: x)


def test_a_definition_that_yields_no_tensor_is_named(make_worker: MakeWorker) -> None:
    operator("Wrong", domain=DOMAIN)(lambda k, x: x[0, 0])
    with pytest.raises(ShapeError, match=r"\(test.custom.Wrong\): operator test.custom.Wrong yielded Expr"):
        make_worker(net(f"y = {DOMAIN}.Wrong (x)"), "cpu").schedule(X)
    numpy_operator("Text", domain=DOMAIN)(lambda x: "text")
    model = net(f"y = {DOMAIN}.Text (x)")
    with pytest.raises(ShapeError, match="test.custom.Text yielded str; its function returns arrays"):
        answer(make_worker, model, "cpu")


def test_a_definition_that_yields_nothing_or_another_type_is_named(make_worker: MakeWorker) -> None:
    operator("Wrong", domain=DOMAIN)(lambda k, x: None)
    with pytest.raises(ShapeError, match="yields nothing for its output 'y'"):
        make_worker(net(f"y = {DOMAIN}.Wrong (x)"), "cpu").schedule(X)
    numpy_operator("Double", domain=DOMAIN)(lambda x: x.astype(np.float64))
    with pytest.raises(ShapeError, match="yields float64 for 'y', which the model declares as float32"):
        answer(make_worker, net(f"y = {DOMAIN}.Double (x)"), "cpu")


def test_an_error_of_a_definition_s_own_tells_where_it_comes_from(make_worker: MakeWorker) -> None:
    operator("Wrong", domain=DOMAIN)(lambda k, x: x.nothing)
    with pytest.raises(AttributeError) as formula:
        make_worker(net(f"y = {DOMAIN}.Wrong (x)"), "cpu").schedule(X)
    assert formula.value.__notes__ == [f"in operator {DOMAIN}.Wrong, for layer 'Wrong_1' ({DOMAIN}.Wrong)"]
    numpy_operator("Array", domain=DOMAIN)(lambda x: x.nothing)
    with pytest.raises(AttributeError) as function:
        answer(make_worker, net(f"y = {DOMAIN}.Array (x)"), "cpu")
    assert function.value.__notes__ == [f"in operator {DOMAIN}.Array"]


def test_the_language_s_names_are_there() -> None:
    for name in gameglue.kernels.__all__:
        assert hasattr(gameglue.kernels, name), name
    assert cast(lit(1.5, "float32"), "int32").dtype == "int32"
