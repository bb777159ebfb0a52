"""Training steps against their update rules in NumPy, several tensors and several steps at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.base.errors import ShapeError
from engine.base.shapes import DynamicTensorShape
from engine.compiler.interpreter import interpret
from engine.graph.model import Input, Layer, Model, Output
from engine.operators.optimizers import DOMAIN
from tests.engine.conftest import MakeWorker, answers
from tests.onnx_cases import disagreement

Rule = Callable[..., tuple[np.ndarray, ...]]
SHAPES = ((3, 2), (5,))


def adagrad(r: float, t: int, x: np.ndarray, g: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, ...]:
    g = g + 0.1 * x
    h = h + g**2
    return x - r / (1 + 0.2 * t) * g / (np.sqrt(h) + 1e-3), h


def adam(
    r: float, t: int, x: np.ndarray, g: np.ndarray, v: np.ndarray, h: np.ndarray
) -> tuple[np.ndarray, ...]:
    g = g + 0.1 * x
    v, h = 0.8 * v + 0.2 * g, 0.9 * h + 0.1 * g**2
    if t:
        r = r * np.sqrt(1 - 0.9**t) / (1 - 0.8**t)
    return 0.95 * (x - r * v / (np.sqrt(h) + 1e-3)), v, h


def momentum(r: float, t: int, x: np.ndarray, g: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, ...]:
    v = 0.8 * v + (0.7 if t else 1.0) * (g + 0.1 * x)
    return x - r * v, v


def nesterov(r: float, t: int, x: np.ndarray, g: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, ...]:
    g = g + 0.1 * x
    v = 0.8 * v + (0.7 if t else 1.0) * g
    return x - r * (g + 0.8 * v), v


REST: dict[str, float | str] = {"norm_coefficient": 0.1}
MOMENTUM = REST | {"alpha": 0.8, "beta": 0.7}
OPTIMIZERS: dict[str, tuple[str, dict[str, float | str], Rule, int]] = {
    "adagrad": ("Adagrad", REST | {"decay_factor": 0.2, "epsilon": 1e-3}, adagrad, 1),
    "adam": (
        "Adam",
        REST | {"alpha": 0.8, "beta": 0.9, "epsilon": 1e-3, "norm_coefficient_post": 0.05},
        adam,
        2,
    ),
    "momentum": ("Momentum", MOMENTUM | {"mode": "standard"}, momentum, 1),
    "nesterov": ("Momentum", MOMENTUM | {"mode": "nesterov"}, nesterov, 1),
}


def optimizer(name: str) -> Model:
    """A model of one step over two tensors."""
    op_type, attributes, _, states = OPTIMIZERS[name]
    kinds = "xgvh"[: 2 + states]
    names = [f"{kind}{i}" for kind in kinds for i in range(len(SHAPES))]
    made = [f"new_{n}" for n in names if n[0] != "g"]
    f32 = np.dtype(np.float32)
    inputs = (
        Input("r", f32, DynamicTensorShape(())),
        Input("t", np.dtype(np.int64), DynamicTensorShape(())),
        *(Input(n, f32, DynamicTensorShape(SHAPES[int(n[1])])) for n in names),
    )
    layer = Layer(op_type, "it", ("r", "t", *names), tuple(made), attributes, DOMAIN, 1)
    return Model("one", inputs, tuple(Output(n, None, None) for n in made), (layer,), {}, {DOMAIN: 1})


def train(name: str, step: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]) -> float:
    """The largest disagreement over three steps, the new states fed back."""
    _, _, rule, states = OPTIMIZERS[name]
    rng = np.random.default_rng(5)
    kinds = "xvh"[: 1 + states]
    ours = {f"{kind}{i}": rng.random(s).astype(np.float32) for kind in kinds for i, s in enumerate(SHAPES)}
    theirs = {n: a.astype(np.float64) for n, a in ours.items()}
    worst = 0.0
    for t in range(3):
        slopes = {f"g{i}": rng.normal(size=s).astype(np.float32) for i, s in enumerate(SHAPES)}
        found = step({"r": np.array(0.1, np.float32), "t": np.array(t), **slopes, **ours})
        for i in range(len(SHAPES)):
            own = [theirs[f"{kind}{i}"] for kind in kinds]
            news = rule(0.1, t, own[0], slopes[f"g{i}"].astype(np.float64), *own[1:])
            theirs |= {f"{kind}{i}": new for kind, new in zip(kinds, news, strict=True)}
        ours = {n: found[f"new_{n}"] for n in ours}
        worst = max([worst, *(disagreement(ours[n], theirs[n]) for n in ours)])
    return worst


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_three_steps_by_numpy(name: str) -> None:
    model = optimizer(name)
    assert train(name, lambda feeds: interpret(model, feeds)) < 1e-5


@pytest.mark.spread("name")
@pytest.mark.parametrize("name", ["adam", "nesterov"])
def test_three_steps_on_every_backend(name: str, channel: str, make_worker: MakeWorker) -> None:
    model = optimizer(name)
    worker = make_worker(model, channel)

    names = [o.name for o in model.outputs]
    step = lambda feeds: dict(zip(names, answers(worker, feeds), strict=True))  # noqa: E731
    assert train(name, step) < (1e-5 if channel == "cpu" else 1e-4)


def test_wrong_use() -> None:
    model = optimizer("adagrad")
    arrays = {i.name: np.zeros(i.shape.to_static() if i.shape else (), i.dtype) for i in model.inputs}
    layer = model.layers[0]
    short = model.replace(layers=(layer.replace(inputs=layer.inputs[:-1]),))
    with pytest.raises(ShapeError, match="3 tensors for each"):
        interpret(short, arrays)
