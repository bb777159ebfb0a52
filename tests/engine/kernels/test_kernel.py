"""Kernels are cached by structure: equal for every size and attribute, different where the text differs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.kernels.evaluate import evaluate
from engine.kernels.expr import (
    FLAT,
    Expr,
    arg,
    cast,
    eq,
    fold,
    index,
    lit,
    load,
    maximum,
    minimum,
    reduce,
    select,
    unary,
)
from engine.kernels.kernel import KernelCall, kernel_call
from engine.kernels.value import Value

F32, F16, I32 = np.dtype(np.float32), np.dtype(np.float16), np.dtype(np.int32)


def tensor(*shape: int, dtype: np.dtype = F32, name: str = "x") -> Value:
    return Value(name, shape, dtype)


def row_sums(rows: int, columns: int, scale: float = 1.0, dtype: np.dtype = F32) -> KernelCall:
    """scale * the sum of each row."""
    x = tensor(rows, columns, dtype=dtype)
    body = reduce("sum", columns, lambda r: x[index(0), r])
    return kernel_call(body * arg(scale, "float32"), 1, dtype)


def test_sizes_and_attributes_are_arguments() -> None:
    one, other = row_sums(3, 4), row_sums(30, 7, scale=0.5)
    assert one.kernel == other.kernel
    assert one.kernel.key == other.kernel.key
    assert one.values == (4, 4, 1.0)
    assert other.values == (7, 7, 0.5)


def test_names_of_tensors_and_loops_do_not_matter() -> None:
    def formula(name: str) -> KernelCall:
        x = tensor(3, 4, name=name)
        total = fold(4, (lit(0.0, "float32"),), lambda r, s: (s + x[index(0), r],))[0]
        return kernel_call(total + reduce("max", 4, lambda r: x[index(0), r]), 1, F32)

    assert formula("x").kernel.key == formula("y").kernel.key


def test_one_tensor_read_twice_is_one_slot_and_two_tensors_are_two() -> None:
    x, y = tensor(5), tensor(5, name="y")
    same = kernel_call(x.at(FLAT) * x.at(FLAT), 1, F32)
    two = kernel_call(x.at(FLAT) * y.at(FLAT), 1, F32)
    assert same.inputs == (x,)
    assert two.inputs == (x, y)
    assert same.kernel.key != two.kernel.key


def test_a_view_is_the_tensor_that_it_views() -> None:
    x = tensor(6)
    assert kernel_call(x.view((2, 3)).at(FLAT) + x.at(FLAT), 1, F32).inputs == (x,)


def test_arguments_of_equal_value_stay_apart() -> None:
    """Else a kernel would be another where two sizes happen to agree."""
    x = tensor(4)
    apart = kernel_call(x.at(index(0) * arg(3) + arg(5)), 1, F32)
    alike = kernel_call(x.at(index(0) * arg(3) + arg(3)), 1, F32)
    assert apart.kernel.key == alike.kernel.key
    assert alike.values == (3, 3)
    shared = arg(3)
    assert kernel_call(x.at(index(0) * shared + shared), 1, F32).kernel.key != alike.kernel.key


X, Y = tensor(5), tensor(5, name="y")
AT = X.at(FLAT)
DIFFERENT: dict[str, Callable[[], KernelCall]] = {
    "plain": lambda: kernel_call(AT, 1, F32),
    "rank": lambda: kernel_call(AT, 2, F32),
    "output": lambda: kernel_call(AT, 1, F16),
    "input": lambda: kernel_call(tensor(5, dtype=F16).at(FLAT), 1, F32),
    "literal 1": lambda: kernel_call(AT + 1.0, 1, F32),
    "literal 2": lambda: kernel_call(AT + 2.0, 1, F32),
    "argument": lambda: kernel_call(AT + arg(1.0, "float32"), 1, F32),
    "order": lambda: kernel_call(1.0 - AT, 1, F32),
    "reversed": lambda: kernel_call(AT - 1.0, 1, F32),
    "max": lambda: kernel_call(maximum(AT, 1.0), 1, F32),
    "min": lambda: kernel_call(minimum(AT, 1.0), 1, F32),
    "position": lambda: kernel_call(X.at(index(0)), 1, F32),
    "axis": lambda: kernel_call(X.at(index(1)), 2, F32),
    "cast": lambda: kernel_call(cast(cast(AT, "int32"), "float32"), 1, F32),
    "unsigned": lambda: kernel_call(cast(cast(AT, "uint32"), "float32"), 1, F32),
    "unary": lambda: kernel_call(unary("exp", AT), 1, F32),
    "operands": lambda: kernel_call(select(eq(AT, Y.at(FLAT)), AT, Y.at(FLAT)), 1, F32),
    "operands swapped": lambda: kernel_call(select(eq(AT, Y.at(FLAT)), Y.at(FLAT), AT), 1, F32),
    "sum": lambda: kernel_call(reduce("sum", 5, lambda r: X.at(r)), 1, F32),
    "product": lambda: kernel_call(reduce("prod", 5, lambda r: X.at(r)), 1, F32),
    "literal extent": lambda: kernel_call(reduce("sum", lit(5), lambda r: X.at(r)), 1, F32),
    "guarded": lambda: kernel_call(load(X, FLAT, lit(3) > FLAT, 0.0), 1, F32),
    "guarded elsewhere": lambda: kernel_call(load(X, FLAT, lit(4) > FLAT, 0.0), 1, F32),
    "false": lambda: kernel_call(lit(False, "bool"), 1, np.dtype(bool)),
    "true": lambda: kernel_call(lit(True, "bool"), 1, np.dtype(bool)),
    "infinite": lambda: kernel_call(maximum(AT, float("inf")), 1, F32),
    "nan": lambda: kernel_call(maximum(AT, float("nan")), 1, F32),
    "minus zero": lambda: kernel_call(maximum(AT, -0.0), 1, F32),
    "zero": lambda: kernel_call(maximum(AT, 0.0), 1, F32),
}


def test_different_structures_have_different_keys() -> None:
    keys: dict[str, str] = {}
    for name, make in DIFFERENT.items():
        key = make().kernel.key
        assert key not in keys, f"'{name}' is taken for '{keys.get(key)}'"
        keys[key] = name
        assert make().kernel.key == key


def test_fold_results_of_one_loop_are_told_apart() -> None:
    def pair(which: int) -> KernelCall:
        results = fold(
            5, (lit(0.0, "float32"), lit(1.0, "float32")), lambda r, a, b: (a + X.at(r), b * X.at(r))
        )
        return kernel_call(results[which], 1, F32)

    assert pair(0).kernel.key != pair(1).kernel.key


def test_literals_of_opposite_zeros_are_not_one() -> None:
    """A formula that holds both must keep both: 1 / x tells them apart."""
    body = select(AT < 0.0, lit(-0.0, "float32"), lit(0.0, "float32"))
    kernel, values, _ = kernel_call(body, 1, F32)
    result = evaluate(kernel, (2,), values, [np.array([-1, 1], np.float32)])
    assert np.signbit(result).tolist() == [True, False]


@pytest.mark.parametrize("depth", [50, 120])
def test_deep_formulas_are_numbered(depth: int) -> None:
    body: Expr = AT
    for _ in range(depth):
        body = unary("sin", body)
    assert body.depth == depth + AT.depth
    assert len(kernel_call(body, 1, F32).kernel.key) == 24


def test_formulas_that_share_parts_are_compared_in_linear_time() -> None:
    """Every level reads the one below twice: comparing each reading on its own would never end."""

    def tower(top: float) -> Expr:
        body: Expr = X.at(lit(0)) + lit(top, "float32")
        for _ in range(90):
            body = body * body
        return body

    assert tower(1.0) == tower(1.0)
    assert tower(1.0) != tower(2.0)
    assert kernel_call(tower(1.0), 1, F32).kernel == kernel_call(tower(1.0), 1, F32).kernel
