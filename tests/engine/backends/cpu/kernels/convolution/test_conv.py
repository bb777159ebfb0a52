"""Convolutions with channels first against the generic formula, over shapes, strides, pads and groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.cpu.backend import CPUBackend
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.compiler.plan import Tuner
from tests.engine.backends.cpu.hinted import Case, check, conv_case, random_windows, tuned_plan

PLAIN: dict[str, Any] = {
    "strides": (1, 1), "dilations": (1, 1), "pads": (0, 0), "ends": (0, 0), "group": 1, "epilogue": None,
}  # fmt: skip


def case(x: tuple[int, ...], w: tuple[int, ...], seed: int = 0, **changes: Any) -> Case:
    return conv_case(seed, x, w, **{**PLAIN, **changes})


def both(x: tuple[int, ...], w: tuple[int, ...], pads: tuple[int, ...], **changes: Any) -> Case:
    """Padded alike at both ends."""
    return case(x, w, pads=pads, ends=pads, **changes)


NAMED: dict[str, Case] = {
    "pointwise": case((2, 7, 9, 11), (13, 7, 1, 1)),
    "pointwise with a stride": case((1, 5, 9, 11), (8, 5, 1, 1), strides=(2, 2)),
    "pointwise with a stride and padding": both((1, 5, 9, 10), (8, 5, 1, 1), (1, 1), strides=(3, 2)),
    "3x3 valid": case((1, 4, 8, 40), (6, 4, 3, 3)),
    "3x3 same": both((2, 4, 8, 40), (6, 4, 3, 3), (1, 1)),
    "3x3 on small planes": both((1, 8, 7, 7), (24, 8, 3, 3), (1, 1)),
    "3x3 on tiny planes": both((1, 3, 2, 2), (5, 3, 3, 3), (1, 1)),
    "one pixel": case((1, 3, 3, 3), (5, 3, 3, 3)),
    "stride 2": both((1, 3, 17, 19), (8, 3, 3, 3), (1, 1), strides=(2, 2)),
    "stride 2, padded at the end only": case((1, 3, 16, 18), (8, 3, 3, 3), strides=(2, 2), ends=(1, 1)),
    "stride 3 with a kernel of 2": case((1, 3, 16, 19), (8, 3, 2, 2), strides=(3, 3)),
    "stride 4 with a kernel of 11": both((1, 3, 40, 45), (8, 3, 11, 11), (2, 2), strides=(4, 4)),
    "7x7 stride 2": both((1, 3, 30, 33), (10, 3, 7, 7), (3, 3), strides=(2, 2)),
    "dilated": both((1, 3, 15, 21), (8, 3, 3, 3), (2, 3), dilations=(2, 3)),
    "dilated with strides": case((1, 3, 25, 31), (8, 3, 3, 3), dilations=(2, 3), strides=(3, 2), pads=(2, 1)),
    "a row": both((1, 6, 1, 50), (4, 6, 1, 5), (0, 2)),
    "a column with a stride": both((1, 6, 50, 3), (4, 6, 5, 1), (2, 0), strides=(2, 1)),
    "more padding than input": case((1, 2, 2, 3), (3, 2, 3, 3), pads=(4, 5), ends=(5, 4)),
    "padding wider than a stride": both((1, 2, 5, 5), (3, 2, 5, 5), (4, 4), strides=(2, 3)),
    "groups": both((2, 12, 9, 9), (20, 3, 3, 3), (1, 1), group=4),
    "groups of one output": both((1, 12, 9, 9), (4, 3, 3, 3), (1, 1), group=4),
    "groups in place": case((1, 12, 9, 21), (16, 3, 3, 3), group=4),
    "groups with a stride": both((2, 8, 19, 70), (12, 4, 5, 3), (2, 1), group=2, strides=(2, 2)),
    "groups, pointwise": case((1, 160, 13, 30), (24, 80, 1, 1), group=2),
    "groups in several bands": both((1, 12, 61, 90), (6, 6, 3, 3), (1, 1), group=2),
    "dilated groups": both((1, 6, 15, 41), (10, 3, 3, 3), (2, 2), group=2, dilations=(2, 2)),
    "groups on one axis": both((2, 6, 141), (8, 3, 5), (2,), group=2, strides=(1,), dilations=(1,)),
    "groups of many outputs": both((1, 6, 9, 9), (40, 3, 3, 3), (1, 1), group=2),
    "deep": both((1, 100, 6, 9), (7, 100, 3, 3), (1, 1)),
    "many rows": case((1, 4, 3, 5), (600, 4, 1, 1)),
    "one axis": both((2, 6, 41), (9, 6, 3), (1,), strides=(2,), dilations=(1,)),
    "long rows of few products": both((2, 1, 9003), (71, 1, 10), (3,), strides=(5,), dilations=(1,)),
    "few products and a residual": case((2, 2, 41, 65), (30, 2, 3, 3), epilogue="residual"),
    "depthwise": both((2, 6, 9, 21), (6, 1, 3, 3), (1, 1), group=6),
    "depthwise with a stride": both((1, 6, 19, 70), (6, 1, 5, 5), (2, 2), group=6, strides=(2, 2)),
    "depthwise with two outputs each": both((2, 5, 9, 9), (10, 1, 3, 3), (1, 1), group=5),
    "depthwise with a stride of 3": both((1, 3, 19, 40), (3, 1, 4, 4), (1, 2), group=3, strides=(3, 3)),
    "depthwise, tall and narrow": both((1, 2, 700, 6), (2, 1, 3, 3), (1, 1), group=2, strides=(2, 1)),
    "depthwise and dilated": both((1, 4, 12, 45), (4, 1, 3, 3), (2, 2), group=4, dilations=(2, 2)),
    "depthwise on long rows": both((1, 2, 3, 2100), (2, 1, 3, 3), (1, 1), group=2),
    "depthwise in several bands": both((1, 2, 61, 90), (2, 1, 3, 3), (1, 1), group=2),
    "depthwise, several bands by twos": both((1, 2, 101, 131), (2, 1, 3, 3), (1, 1), group=2, strides=(2, 2)),
    "depthwise, windows that reach far": both(
        (1, 2, 250, 250), (2, 1, 3, 3), (0, 8), group=2, dilations=(120, 120)
    ),
    "depthwise 7x7": both((2, 3, 30, 29), (3, 1, 7, 7), (3, 3), group=3),
    "depthwise 5x4 on narrow planes": both((1, 3, 15, 14), (3, 1, 5, 4), (2, 2), group=3),
    "depthwise 4x3 in place, wide": case((1, 3, 12, 83), (3, 1, 4, 3), group=3),
    "depthwise 5x5 of three rows": both((1, 3, 3, 40), (3, 1, 5, 5), (2, 2), group=3),
    "depthwise 5x5 in several bands": both((1, 2, 61, 90), (2, 1, 5, 5), (2, 2), group=2),
    "depthwise 5x5, stride along rows": both((1, 3, 20, 75), (3, 1, 5, 5), (2, 2), group=3, strides=(1, 2)),
    "depthwise 4x3, columns dilated": both((1, 3, 20, 50), (3, 1, 4, 3), (1, 2), group=3, dilations=(1, 2)),
    "depthwise 5x5, rows dilated": both((1, 3, 20, 50), (3, 1, 5, 5), (4, 2), group=3, dilations=(2, 1)),
    "groups of tall windows": both((1, 6, 21, 37), (8, 3, 5, 3), (2, 1), group=2),
    "depthwise on one axis": both((1, 4, 33), (4, 1, 3), (1,), group=4, strides=(1,), dilations=(1,)),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_named_shapes(backend: CPUBackend, name: str) -> None:
    check(backend, NAMED[name])


@pytest.mark.parametrize(
    ("name", "kernel"), [("groups", "plane_conv"), ("groups of many outputs", "direct_conv")]
)
def test_narrow_groups_gather_no_columns(backend: CPUBackend, name: str, kernel: str) -> None:
    tuned = tuned_plan(backend, NAMED[name]).steps[-1].kernel
    assert isinstance(tuned, NativeKernel)
    assert tuned.name == kernel


@pytest.mark.long
@pytest.mark.parametrize("epilogue", ["bias", "residual", "position"])
@pytest.mark.parametrize("group", [1, 6])
def test_epilogues(backend: CPUBackend, epilogue: str, group: int) -> None:
    check(backend, case((2, 6, 10, 23), (6, 6 // group, 3, 3), group=group, pads=(1, 1), epilogue=epilogue))
    check(
        backend,
        case(
            (2, 6, 40),
            (6, 6 // group, 3),
            group=group,
            strides=(1,),
            dilations=(1,),
            pads=(1,),
            ends=(0,),
            epilogue=epilogue,
        ),
    )


def test_random_shapes(backend: CPUBackend) -> None:
    rng = np.random.default_rng(5)
    for tried in range(30):
        size, kernel, given = random_windows(rng, 34, padding=3)
        group = int(rng.choice([1, 1, 2, 3]))
        c, m = group * int(rng.integers(1, 9)), group * int(rng.integers(1, 20))
        batch = int(rng.integers(1, 3))
        shapes = (batch, c, *size), (m, c // group, *kernel)
        check(backend, case(*shapes, tried, epilogue="bias", group=group, **given))


def test_large_planes_are_cut_for_all_threads(backend: CPUBackend) -> None:
    large = case((1, 32, 40, 40), (32, 32, 3, 3), pads=(1, 1), ends=(1, 1), epilogue="bias")
    assert tuned_plan(backend, large).steps[-1].space[0] >= 2 * backend.jobs.thread_count
    check(backend, large)


def test_what_has_no_tuned_kernel_stays_generic(backend: CPUBackend) -> None:
    left_alone = case(
        (1, 2, 4, 4, 4), (3, 2, 2, 2, 2), strides=(1,) * 3, dilations=(1,) * 3, pads=(0,) * 3, ends=(0,) * 3
    )
    assert left_alone.compute is not None
    tuner = Tuner(left_alone.compute, lambda name, make: name, lambda count, dtype: "scratch")
    assert not backend.tune(left_alone.compute, tuner)
    assert not tuner.steps


def test_computed_weights_meet_tiles_too(backend: CPUBackend) -> None:
    unknown = case((2, 6, 9, 11), (8, 3, 3, 3), group=2)
    assert unknown.compute is not None
    assert unknown.compute.hint is not None
    unknown.compute.hint.operands[1].known = None
    check(backend, unknown)
