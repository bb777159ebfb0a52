"""Activations by name: those inside recurrent layers, and behind the fused layers that onnxruntime writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.kernels.expr import Expr, arg, clamp, maximum, select, unary
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.elementwise import sigmoid, softplus

Activation = Callable[[Expr], Expr]

TAKES_ALPHA = frozenset({"affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"})
TAKES_BETA = frozenset({"affine", "scaledtanh", "hardsigmoid"})


def activation(k: Builder, name: str, alpha: float | None, beta: float | None) -> Activation:
    """An activation by its name, in any case; for Clip, `alpha` and `beta` are the ends of its range."""

    def given(value: float | None, default: float, x: Expr) -> Expr:
        return arg(default if value is None else float(value), x.dtype)

    def affine(x: Expr) -> Expr:
        return given(alpha, 1.0, x) * x + given(beta, 0.0, x)

    def hard_sigmoid(x: Expr) -> Expr:
        return clamp(given(alpha, 0.2, x) * x + given(beta, 0.5, x), 0.0, 1.0)

    def clip(x: Expr) -> Expr:
        return clamp(x, given(alpha, -3.4028234663852886e38, x), given(beta, 3.4028234663852886e38, x))

    def selu(x: Expr) -> Expr:
        low = given(alpha, 1.6732632423543772, x) * (unary("exp", x) - 1.0)
        return given(beta, 1.0507009873554805, x) * select(x < 0.0, low, x)

    table: dict[str, Activation] = {
        "relu": lambda x: maximum(x, 0.0),
        "tanh": lambda x: unary("tanh", x),
        "sigmoid": sigmoid,
        "affine": affine,
        "leakyrelu": lambda x: select(x < 0.0, given(alpha, 0.01, x) * x, x),
        "thresholdedrelu": lambda x: select(x > given(alpha, 1.0, x), x, 0.0),
        "scaledtanh": lambda x: given(alpha, 1.0, x) * unary("tanh", given(beta, 1.0, x) * x),
        "hardsigmoid": hard_sigmoid,
        "elu": lambda x: select(x < 0.0, given(alpha, 1.0, x) * (unary("exp", x) - 1.0), x),
        "softsign": lambda x: x / (1.0 + unary("abs", x)),
        "softplus": softplus,
        "clip": clip,
        "selu": selu,
    }
    if name.lower() not in table:
        k.error(f"unknown activation {name!r}; one of {', '.join(table)}")
    return table[name.lower()]


def choose_activations(
    k: Builder,
    names: Sequence[str],
    defaults: Sequence[str],
    alpha: Sequence[float],
    beta: Sequence[float],
    count: int,
) -> list[Activation]:
    """One activation per gate and direction; alpha and beta are consumed in order, as ONNX words it."""
    names = list(names) or list(defaults) * count
    if len(names) != len(defaults) * count:
        k.error(f"{len(defaults) * count} activations are needed, not {len(names)}")
    alphas, betas = list(alpha), list(beta)
    found = []
    for name in names:
        a = alphas.pop(0) if name.lower() in TAKES_ALPHA and alphas else None
        b = betas.pop(0) if name.lower() in TAKES_BETA and betas else None
        found.append(activation(k, name, a, b))
    return found


def activated(k: Builder, y: Value, name: str, params: Sequence[float]) -> Value:
    """A layer's result after the activation that it names, if any; `params` are alpha and beta."""
    alpha, beta = (params[i] if i < len(params) else None for i in (0, 1))
    return k.elementwise(activation(k, name, alpha, beta), y) if name else y
