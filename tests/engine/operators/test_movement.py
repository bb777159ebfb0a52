"""Moving, joining and cutting against NumPy, on shapes and types that ONNX's own cases do not cover."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations, product

import numpy as np
import pytest

from engine.base.dtypes import STORAGE_TYPES, as_dtype
from engine.base.errors import ShapeError
from engine.compiler.interpreter import elements
from engine.compiler.trace import Tracer
from engine.operators.movement import cut_of
from tests.engine.operators.single import one_layer, run
from tests.graphs import node, proto
from tests.peer import open_session


def numbered(*shape: int, dtype: str = "float32") -> np.ndarray:
    """A tensor whose elements differ as far as its type allows."""
    return np.arange(int(np.prod(shape))).reshape(shape).astype(as_dtype(dtype))


@pytest.mark.parametrize("perm", [*permutations(range(4))], ids=str)
def test_transpose_in_any_order(perm: tuple[int, ...]) -> None:
    for shape in ((2, 3, 4, 5), (2, 1, 4, 5), (1, 3, 1, 1)):
        x = numbered(*shape)
        np.testing.assert_array_equal(run("Transpose", [x], {"perm": perm})[0], x.transpose(perm))


def test_transpose_is_free_where_only_axes_of_size_one_move() -> None:
    x = numbered(2, 1, 4, 5)
    model = one_layer("Transpose", [x], {"perm": (0, 2, 3, 1)})
    trace = Tracer(model).trace({"x0": x.shape})
    assert trace.computes == []
    assert trace.tensor("y0").shape == (2, 4, 5, 1)


def test_transpose_walks_neighbours_as_one() -> None:
    x = numbered(2, 3, 4, 5)
    trace = Tracer(one_layer("Transpose", [x], {"perm": (2, 3, 0, 1)})).trace({"x0": x.shape})
    assert trace.computes[0].space == (20, 6)


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [((3, 1), (2, 1, 6)), ((1,), (4, 5)), ((), (2, 2)), ((2, 1, 3), (1,)), ((2, 3), (2, 1, 1)), ((), ()),
     ((1, 3), (0, 3))],
)  # fmt: skip
def test_expand(shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    x = numbered(*shape)
    expected = np.broadcast_to(x, np.broadcast_shapes(shape, wanted))
    np.testing.assert_array_equal(run("Expand", [x, np.array(wanted, np.int64)])[0], expected)


@pytest.mark.parametrize("repeats", [(1, 1, 1), (2, 1, 3), (1, 4, 1), (2, 0, 1)])
def test_tile(repeats: tuple[int, ...]) -> None:
    x = numbered(2, 1, 3)
    np.testing.assert_array_equal(run("Tile", [x, np.array(repeats)])[0], np.tile(x, repeats))


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("count", [1, 2, 7, 8, 23])
def test_concat_of_many(axis: int, count: int) -> None:
    shapes = [[2, 3, 2] for _ in range(count)]
    for position, shape in enumerate(shapes):
        shape[axis] = (position * 5) % 4
    xs = [numbered(*shape) + 100 * i for i, shape in enumerate(shapes)]
    np.testing.assert_array_equal(run("Concat", xs, {"axis": axis})[0], np.concatenate(xs, axis))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_split_in_every_style(axis: int) -> None:
    x = numbered(4, 6, 8)
    n = x.shape[axis]
    sizes = (1, n - 1, 0)
    cut = np.split(x, [1, n], axis)
    even = np.split(x, 2, axis)
    seven = [*range(2, n, 2)]
    for found, expected in (
        (run("Split", [x], {"axis": axis, "split": sizes}, opset=11, outputs=3), cut),
        (run("Split", [x, np.array(sizes)], {"axis": axis}, outputs=3), cut),
        (run("Split", [x], {"axis": axis}, opset=11, outputs=2), even),
        (run("Split", [x], {"axis": axis}, opset=13, outputs=2), even),
        (run("Split", [x], {"axis": axis, "num_outputs": n // 2}, outputs=n // 2), np.split(x, seven, axis)),
    ):
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_split_leaves_the_last_piece_smaller() -> None:
    x = numbered(7)
    found = run("Split", [x], {"num_outputs": 3}, opset=18, outputs=3)
    assert [piece.tolist() for piece in found] == [[0, 1, 2], [3, 4, 5], [6]]


SLICES: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = [
    ((1,), (3,), (0,), (1,)),
    ((-3, 0), (100, -1), (1, 2), (1, 2)),
    ((100, -1), (-100, 0), (0, 2), (-1, -2)),
    ((2**31 - 1,), (-(2**63),), (-1,), (-3,)),
    ((5,), (2,), (1,), (1,)),
    ((0, 0, 0), (2**63 - 1,) * 3, (2, 0, 1), (3, 1, 2)),
]


@pytest.mark.parametrize(("starts", "ends", "axes", "steps"), SLICES)
def test_slice(starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int]) -> None:
    x = numbered(4, 5, 6)
    index = [slice(None)] * 3
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        index[axis] = slice(start, end, step)
    arrays = [x, *(np.array(v, np.int64) for v in (starts, ends, axes, steps))]
    np.testing.assert_array_equal(run("Slice", arrays)[0], x[tuple(index)])
    if set(steps) == {1}:
        attributes = {"starts": starts, "ends": ends, "axes": axes}
        np.testing.assert_array_equal(run("Slice", [x], attributes, opset=9)[0], x[tuple(index)])


FAR = (-(2**63), -100, -6, -5, -1, 0, 3, 4, 5, 100, 2**31 - 1, 2**31, 2**63 - 1)
"""Starts and ends within an axis of 5, at its borders and far beyond."""


def test_the_ends_of_a_slice_are_limited_as_onnxruntime_does() -> None:
    names = [f"x{i}" for i in range(5)]
    declared: dict[str, tuple[str, Sequence[int | None]]] = {n: ("int64", [1]) for n in names}
    declared["x0"] = ("float32", [None])
    made = proto([node("Slice", names, ["y"])], declared, {"y": ("float32", None)})
    session = open_session(made)
    for size in (0, 1, 5):
        x = numbered(size)
        for start, end, step in product(FAR, FAR, (-(2**63), -2, -1, 1, 3, 2**63 - 1)):
            arrays = dict(zip(names, (x, *(np.array([n]) for n in (start, end, 0, step))), strict=True))
            taken = x[[*cut_of(size, start, end, step).indices]]
            np.testing.assert_array_equal(taken, session.run(None, arrays)[0], f"{size} {start} {end} {step}")
    backwards = [np.array([-9, 2]), np.array([2**63 - 1, -9]), np.array([0, 1]), np.array([-1, -2])]
    np.testing.assert_array_equal(run("Slice", [numbered(3, 4), *backwards])[0], [[2, 0]])


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_space_to_depth_undoes_depth_to_space(mode: str) -> None:
    x = numbered(2, 18, 2, 4)
    (spread,) = run("DepthToSpace", [x], {"blocksize": 3, "mode": mode})
    assert spread.shape == (2, 2, 6, 12)
    blocks = (
        x.reshape(2, 3, 3, 2, 2, 4)
        if mode == "DCR"
        else x.reshape(2, 2, 3, 3, 2, 4).transpose(0, 2, 3, 1, 4, 5)
    )
    np.testing.assert_array_equal(spread, blocks.transpose(0, 3, 4, 1, 5, 2).reshape(2, 2, 6, 12))
    np.testing.assert_array_equal(run("SpaceToDepth", [spread], {"blocksize": 3, "mode": mode})[0], x)


@pytest.mark.parametrize("diagonal", [None, 0, 2, -1, 10**12, -(10**12)])
@pytest.mark.parametrize("upper", [0, 1])
def test_trilu(upper: int, diagonal: int | None) -> None:
    x = numbered(2, 3, 4) + 1
    k = max(-9, min(9, diagonal or 0))
    expected = np.triu(x, k) if upper else np.tril(x, k)
    arrays = [x, None if diagonal is None else np.array(diagonal, np.int64)]
    np.testing.assert_array_equal(run("Trilu", arrays, {"upper": upper})[0], expected)


def test_lengths_outside_a_sequence_are_limited() -> None:
    x = numbered(3, 4)
    (found,) = run("ReverseSequence", [x, np.array([9, -2, 2])], {"batch_axis": 0, "time_axis": 1})
    np.testing.assert_array_equal(found, [[3, 2, 1, 0], [4, 5, 6, 7], [9, 8, 10, 11]])


@pytest.mark.parametrize("dtype", STORAGE_TYPES)
def test_every_element_type_moves_unchanged(dtype: str) -> None:
    start = 1 if dtype == "float8_e8m0fnu" else -8
    x = np.arange(start, start + 24).reshape(2, 3, 4).astype(as_dtype(dtype))
    fill = x[0, 1, 2]
    bounds = [np.array(v) for v in ([0], [2], [1])]
    for found, expected in (
        (run("Transpose", [x])[0], x.transpose()),
        (run("Concat", [x, x], {"axis": 1})[0], np.concatenate([x, x], 1)),
        (run("Slice", [x, *bounds])[0], x[:, 0:2]),
        (run("Expand", [x[:, :1], np.array(x.shape)])[0], np.broadcast_to(x[:, :1], x.shape)),
        (
            run("Pad", [x, np.array([0, 1, 0, 0, 0, 2]), np.array(fill)])[0],
            np.pad(x, [(0, 0), (1, 0), (0, 2)], constant_values=fill),
        ),
        (run("Gather", [x, np.array([2, 0])], {"axis": 1})[0], x[:, [2, 0]]),
        (run("Tile", [x, np.array([1, 2, 1])])[0], np.tile(x, (1, 2, 1))),
    ):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


# Views


@pytest.mark.parametrize(
    ("shape", "wanted", "allowzero", "result"),
    [
        ((2, 3, 4), (4, -1), 0, (4, 6)),
        ((2, 3, 4), (0, -1), 0, (2, 12)),
        ((2, 0, 4), (0, 4, -1), 0, (2, 4, 0)),
        ((2, 0, 4), (0, 7), 1, (0, 7)),
        ((0, 3), (3, 0), 0, None),
        ((1,), (), 0, ()),
    ],
)
def test_reshape(
    shape: tuple[int, ...], wanted: Sequence[int], allowzero: int, result: tuple[int, ...] | None
) -> None:
    arrays = [numbered(*shape), np.array(wanted, np.int64)]
    if result is None:
        with pytest.raises(ShapeError, match="'it'"):
            run("Reshape", arrays, {"allowzero": allowzero})
    else:
        assert run("Reshape", arrays, {"allowzero": allowzero})[0].shape == result


@pytest.mark.parametrize("axis", range(-3, 4))
def test_flatten(axis: int) -> None:
    x = numbered(2, 3, 4)
    assert run("Flatten", [x], {"axis": axis})[0].shape == (
        int(np.prod(x.shape[:axis])),
        int(np.prod(x.shape[axis:])),
    )


def test_squeeze_and_unsqueeze_in_both_styles() -> None:
    x = numbered(1, 3, 1, 2)
    none = np.array([], np.int64)
    assert run("Squeeze", [x])[0].shape == (3, 2)
    assert run("Squeeze", [x], {"axes": (-2,)}, opset=11)[0].shape == (1, 3, 2)
    assert run("Squeeze", [x, np.array([0])])[0].shape == (3, 1, 2)
    assert run("Squeeze", [x, none])[0].shape == (1, 3, 1, 2)
    assert run("Unsqueeze", [x[0, :, 0]], {"axes": (0, -1)}, opset=11)[0].shape == (1, 3, 2, 1)
    assert run("Unsqueeze", [x[0, :, 0], np.array([3, 1])])[0].shape == (3, 1, 2, 1)


def test_a_view_shares_its_source_s_elements() -> None:
    x = numbered(2, 6)
    model = one_layer("Reshape", [x, np.array([3, 4])], known=[1])
    trace = Tracer(model).trace({"x0": x.shape})
    assert trace.computes == []
    assert elements(trace.tensor("y0"), {trace.tensor("x0").root.name: x}).shape == (3, 4)


FLOAT = numbered(2, 3)


@pytest.mark.parametrize(
    ("op_type", "arrays", "attributes", "message"),
    [
        ("Transpose", [FLOAT], {"perm": (0, 0)}, "does not order the axes"),
        ("Expand", [FLOAT, np.array([4, 3])], {}, "cannot broadcast"),
        ("Expand", [FLOAT, np.array([2, -3])], {}, "a size is negative"),
        ("Tile", [FLOAT, np.array([2])], {}, "one repeat"),
        ("Concat", [FLOAT, numbered(2, 4)], {"axis": 0}, "cannot join"),
        ("Concat", [FLOAT, FLOAT.astype(np.int32)], {"axis": 0}, "cannot join float32 and int32"),
        ("Split", [FLOAT, np.array([2, 2])], {"axis": 1}, "cannot split 3 elements"),
        ("Slice", [FLOAT, np.array([0]), np.array([1]), np.array([0]), np.array([0])], {}, "cannot slice"),
        ("Slice", [FLOAT, np.array([0, 1]), np.array([1])], {}, "2 starts, 1 ends"),
        ("DepthToSpace", [numbered(1, 6, 2, 2)], {"blocksize": 2}, "cannot move blocks"),
        ("SpaceToDepth", [numbered(1, 1, 3, 2)], {"blocksize": 2}, "cannot cut"),
        ("DepthToSpace", [numbered(1, 4, 2, 2)], {"blocksize": 2, "mode": "XYZ"}, "one of DCR, CRD"),
        ("Trilu", [numbered(3)], {}, "takes matrices"),
        ("Squeeze", [FLOAT, np.array([1])], {}, "its size is not 1"),
        ("Unsqueeze", [FLOAT, np.array([0, 0])], {}, "one axis twice"),
        ("Flatten", [FLOAT], {"axis": 3}, "axis 3 is outside"),
        ("Reshape", [FLOAT, np.array([4, -1])], {}, "cannot view"),
        ("Reshape", [FLOAT, np.array([-1, -1])], {}, "at most one entry"),
        ("Reshape", [FLOAT, np.array([3, 1, 0])], {}, "has no such axis"),
    ],
)
def test_errors_name_the_layer(
    op_type: str, arrays: Sequence[np.ndarray], attributes: dict, message: str
) -> None:
    with pytest.raises(ShapeError, match=f"layer 'it' \\({op_type}\\): .*{message}"):
        run(op_type, arrays, attributes)


def test_an_uneven_split_without_sizes_needs_opset_18() -> None:
    with pytest.raises(ShapeError, match="cannot split 7 elements into 3 pieces"):
        run("Split", [numbered(7)], opset=13, outputs=3)
