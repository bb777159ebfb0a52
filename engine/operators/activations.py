"""Activation functions with parameters: as operators, in recurrent layers and in fused layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.graph.model import CONTRIB
from engine.kernels.expr import Expr, arg, clamp, lit, maximum, minimum, select, unary
from engine.kernels.value import Value
from engine.operators import bounded_sizes
from engine.operators.builder import Builder
from engine.operators.elementwise import sigmoid, softplus
from engine.operators.registry import operator

Activation = Callable[[Expr], Expr]
NAMED: dict[str, tuple[Callable[..., Expr], *tuple[float, ...]]] = {
    "relu": (lambda x: maximum(x, 0.0),),
    "tanh": (lambda x: unary("tanh", x),),
    "sigmoid": (sigmoid,),
    "softsign": (lambda x: x / (1.0 + unary("abs", x)),),
    "softplus": (softplus,),
    "clip": (clamp, -3.4028234663852886e38, 3.4028234663852886e38),
}
"""Formulas by name, of an element and up to two parameters, and the defaults of these."""


def _with_alpha(
    name: str, formula: Callable[[Expr, Expr], Expr], alpha: float, since: int = 1, domain: str = ""
) -> None:
    NAMED[name.lower()] = (formula, alpha)

    @operator(name, since=since, domain=domain, bound=bounded_sizes.broadcast)
    def define(k: Builder, x: Value, *, alpha: float = alpha) -> Value:
        return k.elementwise(lambda e: formula(e, arg(alpha, e.dtype)), x)


def _with_both(
    name: str, formula: Callable[[Expr, Expr, Expr], Expr], alpha: float, beta: float, since: int = 1
) -> None:
    NAMED[name.lower()] = (formula, alpha, beta)

    @operator(name, since=since, bound=bounded_sizes.broadcast)
    def define(k: Builder, x: Value, *, alpha: float = alpha, beta: float = beta) -> Value:
        return k.elementwise(lambda e: formula(e, arg(alpha, e.dtype), arg(beta, e.dtype)), x)


def elu(x: Expr, alpha: Expr) -> Expr:
    """x, or alpha * (exp(x) - 1) below zero."""
    return select(x < 0.0, alpha * (unary("exp", x) - 1.0), x)


_with_alpha("Elu", elu, 1.0, since=6)
_with_alpha("LeakyRelu", lambda x, a: select(x < lit(0, x.dtype), a * x, x), 0.01, since=6)
_with_alpha("ThresholdedRelu", lambda x, a: select(x > a, x, 0.0), 1.0, since=10)
_with_alpha(
    "Celu", lambda x, a: maximum(x, 0.0) + minimum(a * (unary("exp", x / a) - 1.0), 0.0), 1.0, since=12
)
_with_alpha("Swish", lambda x, a: x * sigmoid(a * x), 1.0, since=24)
_with_alpha("QuickGelu", lambda x, a: x * sigmoid(a * x), 1.702, domain=CONTRIB)
_with_both("HardSigmoid", lambda x, a, b: clamp(a * x + b, 0.0, 1.0), 0.2, 0.5, since=6)
_with_both("Affine", lambda x, a, b: a * x + b, 1.0, 0.0)
_with_both("ParametricSoftplus", lambda x, a, b: a * softplus(b * x), 0.0, 0.0)
_with_both("ScaledTanh", lambda x, a, b: a * unary("tanh", b * x), 0.0, 0.0)
# Inside of recurrent layers.
NAMED["scaledtanh"] = (NAMED["scaledtanh"][0], 1.0, 1.0)


@operator("Selu", since=6, bound=bounded_sizes.broadcast)
def selu(
    k: Builder, x: Value, *, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805
) -> Value:
    """gamma * Elu (Klambauer et al., 2017)."""
    return k.elementwise(lambda e: arg(gamma, e.dtype) * elu(e, arg(alpha, e.dtype)), x)


NAMED["selu"] = (lambda x, a, g: g * elu(x, a), 1.6732632423543772, 1.0507009873554805)


def activation(k: Builder, name: str, *given: float | None) -> Activation:
    """An activation by its name, in any case; a parameter that is None has its default."""
    if name.lower() not in NAMED:
        k.error(f"unknown activation {name!r}; one of {', '.join(NAMED)}")
    formula, *defaults = NAMED[name.lower()]
    chosen = [d if p is None else float(p) for d, p in zip(defaults, given, strict=False)]
    return lambda x: formula(x, *(arg(p, x.dtype) for p in chosen))


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
    parameters = list(alpha), list(beta)
    found = []
    for name in names:
        taken = len(NAMED.get(name.lower(), ())) - 1
        given = [numbers.pop(0) if n < taken and numbers else None for n, numbers in enumerate(parameters)]
        found.append(activation(k, name, *given))
    return found


def activated(k: Builder, y: Value, name: str, params: Sequence[float]) -> Value:
    """A layer's result after the activation that it names, if any; `params` are alpha and beta."""
    return k.elementwise(activation(k, name, *params, None, None), y) if name else y
