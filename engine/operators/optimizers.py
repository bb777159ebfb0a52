"""Steps of training: Adagrad, Adam and Momentum, each over any number of tensors.

The inputs after the learning rate and the count of updates so far are all tensors to optimize, then all
their gradients, then each kind of state; the outputs are all new tensors, then each kind of new state.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.kernels.expr import Expr, arg, binary, cast, lit, select, unary
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.registry import operator

DOMAIN = "ai.onnx.preview.training"

Update = Callable[..., tuple[Value, ...]]
"""New tensor and new states from a tensor, its gradient and its states."""


def updated(k: Builder, tensors: tuple[Value, ...], kinds: int, update: Update) -> tuple[Value, ...]:
    """`update` for each group of a tensor and its `kinds - 1` companions."""
    if not tensors or len(tensors) % kinds:
        k.error(f"takes {kinds} tensors for each one to optimize, not {len(tensors)} in all")
    count = len(tensors) // kinds
    groups = [tensors[i::count] for i in range(count)]
    for first, *others in groups:
        if any(t.shape != first.shape or t.dtype != first.dtype for t in others):
            k.error(f"{first} and what belongs to it differ in shape or type: {', '.join(map(str, others))}")
    news = [update(*group) for group in groups]
    return tuple(new[kind] for kind in range(len(news[0])) for new in news)


def regularized(x: Expr, g: Expr, coefficient: float) -> Expr:
    """The gradient with L2 regularization."""
    return arg(coefficient, x.dtype) * x + g


@operator("Adagrad", since=1, domain=DOMAIN)
def adagrad(
    k: Builder, r: Value, t: Value, *tensors: Value, decay_factor: float = 0.0, epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> tuple[Value, ...]:  # fmt: skip
    """h' = h + g * g; x' = x - rate * g / (sqrt(h') + epsilon) (Duchi et al., 2011)."""

    def rate_of(rate: Expr, step: Expr) -> Expr:
        return rate / (1.0 + cast(step, rate.dtype) * arg(decay_factor, rate.dtype))

    rate = k.elementwise(rate_of, r, t)

    def update(x: Value, g: Value, h: Value) -> tuple[Value, ...]:
        def squares(x: Expr, g: Expr, h: Expr) -> Expr:
            g = regularized(x, g, norm_coefficient)
            return h + g * g

        new_h = k.elementwise(squares, x, g, h)

        def step(x: Expr, g: Expr, h: Expr, rate: Expr) -> Expr:
            g = regularized(x, g, norm_coefficient)
            return x - cast(rate, x.dtype) * g / (unary("sqrt", h) + arg(epsilon, x.dtype))

        return k.elementwise(step, x, g, new_h, rate), new_h

    return updated(k, tensors, 3, update)


@operator("Adam", since=1, domain=DOMAIN)
def adam(
    k: Builder, r: Value, t: Value, *tensors: Value, alpha: float = 0.9, beta: float = 0.999,
    epsilon: float = 1e-6, norm_coefficient: float = 0.0, norm_coefficient_post: float = 0.0,
) -> tuple[Value, ...]:  # fmt: skip
    """Averages of gradient and squared gradient, corrected for their start (Kingma and Ba, 2015)."""

    def rate_of(rate: Expr, step: Expr) -> Expr:
        dtype, count = rate.dtype, cast(step, rate.dtype)
        left = [1.0 - binary("pow", arg(c, dtype), count) for c in (alpha, beta)]
        is_first = count <= lit(0.0, dtype)
        # At the first step both are 0, and neither side of a choice is left out.
        return select(is_first, rate, rate * unary("sqrt", left[1]) / select(is_first, 1.0, left[0]))

    rate = k.elementwise(rate_of, r, t)

    def average(old: Expr, new: Expr, share: float) -> Expr:
        return arg(share, old.dtype) * old + arg(1.0 - share, old.dtype) * new

    def update(x: Value, g: Value, v: Value, h: Value) -> tuple[Value, ...]:
        def first(x: Expr, g: Expr, v: Expr) -> Expr:
            return average(v, regularized(x, g, norm_coefficient), alpha)

        def second(x: Expr, g: Expr, h: Expr) -> Expr:
            g = regularized(x, g, norm_coefficient)
            return average(h, g * g, beta)

        new_v, new_h = k.elementwise(first, x, g, v), k.elementwise(second, x, g, h)

        def step(x: Expr, v: Expr, h: Expr, rate: Expr) -> Expr:
            new = x - cast(rate, x.dtype) * (v / (unary("sqrt", h) + arg(epsilon, x.dtype)))
            return arg(1.0 - norm_coefficient_post, x.dtype) * new

        return k.elementwise(step, x, new_v, new_h, rate), new_v, new_h

    return updated(k, tensors, 4, update)


@operator("Momentum", since=1, domain=DOMAIN)
def momentum(
    k: Builder, r: Value, t: Value, *tensors: Value, alpha: float, beta: float, mode: str,
    norm_coefficient: float,
) -> tuple[Value, ...]:  # fmt: skip
    """v' = alpha * v + beta * g (at first 1 * g); x' = x - r * v', Nesterov's x - r * (g + alpha * v')."""
    k.one_of("mode", mode, ("standard", "nesterov"))

    def update(x: Value, g: Value, v: Value) -> tuple[Value, ...]:
        def velocity(x: Expr, g: Expr, v: Expr, t: Expr) -> Expr:
            g = regularized(x, g, norm_coefficient)
            share = select(t > lit(0, t.dtype), arg(beta, x.dtype), lit(1.0, x.dtype))
            return arg(alpha, x.dtype) * v + share * g

        def step(x: Expr, g: Expr, v: Expr, rate: Expr) -> Expr:
            if mode == "nesterov":
                v = regularized(x, g, norm_coefficient) + arg(alpha, x.dtype) * v
            return x - cast(rate, x.dtype) * v

        new_v = k.elementwise(velocity, x, g, v, t)
        return k.elementwise(step, x, g, new_v, r), new_v

    return updated(k, tensors, 3, update)
