"""Operators that move, view, pick, reduce and rank, on random shapes with sizes of 0 and 1."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.engine.conftest import MakeWorker
from tests.engine.operators.properties import (
    FILLED,
    SIZES,
    Draw,
    Example,
    Expected,
    Subject,
    everyday,
    hold_by_numpy,
    hold_on,
    ints,
    sizes_of,
    tensor,
)

NMK = ("n", "m", "k")
AXES = st.integers(-3, 2)


def cube(
    draw: Draw, dtype: str = "float32", of: st.SearchStrategy[int] = SIZES, low: float = -4, high: float = 4
) -> tuple[np.ndarray, Any]:
    """A tensor of rank 3."""
    return tensor(draw, sizes_of(draw, *NMK, of=of), NMK, dtype, low, high)


# Movement and views


@st.composite
def transpose(draw: Draw) -> Example:
    """Any order, or the default."""
    perm = draw(st.sampled_from([None, (0, 2, 1), (2, 0, 1), (1, 0, 2), (0, 1, 2)]))
    return Example("Transpose", [cube(draw)], {} if perm is None else {"perm": perm})


@st.composite
def expand(draw: Draw) -> Example:
    """To more axes and larger sizes."""
    sizes = sizes_of(draw, "n", "m")
    target = draw(st.sampled_from([(2, 1, sizes["n"], 3, 1), (1,), (4, 1)]))
    return Example("Expand", [tensor(draw, sizes, ("n", 1, "m")), ints(*target)])


@st.composite
def tile(draw: Draw) -> Example:
    """0 to 3 repeats of each axis."""
    return Example("Tile", [cube(draw), ints(*(draw(st.integers(0, 3)) for _ in NMK))], expected=np.tile)


@st.composite
def concat(draw: Draw) -> Example:
    """Tensors of several lengths, some of them empty."""
    axis = draw(st.integers(0, 2))
    sizes = sizes_of(draw, *NMK, "a", "b")
    names = [*NMK]
    parts = []
    for own in ("a", "b", NMK[axis], "a")[: draw(st.integers(1, 4))]:
        names[axis] = own
        parts.append(tensor(draw, sizes, tuple(names)))
    return Example("Concat", parts, {"axis": draw(st.sampled_from([axis, axis - 3]))})


@st.composite
def split(draw: Draw) -> Example:
    """Into pieces of any sizes, 0 included."""
    axis = draw(AXES)
    x = cube(draw)
    length = x[0].shape[axis]
    cut = draw(st.integers(0, length))
    pieces = ints(cut, length - cut)
    return Example("Split", [x, pieces], {"axis": axis}, outputs=2, expected=by_split)


def by_split(x: np.ndarray, pieces: np.ndarray, axis: int) -> tuple[np.ndarray, ...]:
    """NumPy's cut at each piece's end."""
    return tuple(np.split(x, [*accumulate(pieces.tolist())][:-1], axis))


@st.composite
def slices(draw: Draw) -> Example:
    """Starts and ends inside and outside, steps of both signs, over two of three axes."""
    axes = draw(st.sampled_from([(0, 1), (2, 0), (-1, -2)]))
    steps = [draw(st.sampled_from([1, 1, 2, -1, -3])) for _ in axes]
    bounds = [[draw(st.integers(-9, 9)) for _ in axes] for _ in range(2)]
    arrays = [ints(*values) for values in (*bounds, axes, steps)]
    return Example("Slice", [cube(draw), *arrays], expected=by_slice)


def by_slice(x: np.ndarray, *parts: np.ndarray) -> np.ndarray:
    """NumPy's slicing, but that a start before the first element is the first one, backwards too."""
    index = [slice(None)] * x.ndim
    for start, end, axis, step in zip(*(p.tolist() for p in parts), strict=True):
        index[axis] = slice(max(start, -x.shape[axis]) if step < 0 else start, end, step)
    return x[tuple(index)]


@st.composite
def blocks(draw: Draw, op_type: str) -> Example:
    """Space to depth and back."""
    size, (n, c, h, w) = draw(st.integers(1, 3)), (draw(FILLED) for _ in range(4))
    deep = op_type == "DepthToSpace"
    shape = (n, c * size * size, h, w) if deep else (n, c, h * size, w * size)
    attributes: dict[str, Any] = {"blocksize": size}
    if deep:
        attributes["mode"] = draw(st.sampled_from(["DCR", "CRD"]))
    sizes = {"n": shape[0], "h": shape[2], "w": shape[3]}
    return Example(op_type, [tensor(draw, sizes, ("n", shape[1], "h", "w"))], attributes)


@st.composite
def trilu(draw: Draw) -> Example:
    """Diagonals inside and outside."""
    diagonal = draw(st.integers(-9, 9))
    return Example("Trilu", [cube(draw), (np.array(diagonal), None)], {"upper": draw(st.integers(0, 1))})


@st.composite
def reverse(draw: Draw) -> Example:
    """Lengths of 1 to all."""
    sizes = sizes_of(draw, *NMK, of=FILLED)
    time = draw(st.integers(0, 1))
    lengths = tensor(draw, sizes, (NMK[1 - time],), "int64", 1, sizes[NMK[time]])
    attributes = {"time_axis": time, "batch_axis": 1 - time}
    return Example("ReverseSequence", [tensor(draw, sizes, NMK), lengths], attributes)


@st.composite
def view(draw: Draw, op_type: str, targets: Sequence[tuple[int, ...]], of: Any = SIZES) -> Example:
    """A view with one of several constant second inputs."""
    return Example(op_type, [cube(draw, of=of), ints(*draw(st.sampled_from(targets)))])


@st.composite
def squeeze(draw: Draw) -> Example:
    """Axes of size 1, named or not."""
    x = tensor(draw, sizes_of(draw, "n", of=st.sampled_from([0, 2, 5])), (1, "n", 1))
    chosen = draw(st.sampled_from([None, (0,), (-1,), (2, 0)]))
    return Example("Squeeze", [x, *([] if chosen is None else [ints(*chosen)])])


@st.composite
def flatten(draw: Draw) -> Example:
    """Before any axis, or behind the last."""
    axis = draw(st.integers(-3, 3))
    expected = lambda x, axis: x.reshape(int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:])))  # noqa: E731
    return Example("Flatten", [cube(draw)], {"axis": axis}, expected=expected)


@st.composite
def shape(draw: Draw) -> Example:
    """From and to any axis; those outside are limited to the axes there are."""
    ends = {name: draw(st.integers(-4, 4)) for name in ("start", "end")}
    expected = lambda x, start, end: np.array(x.shape[start:end], np.int64)  # noqa: E731
    return Example("Shape", [cube(draw)], ends, expected=expected)


@st.composite
def size(draw: Draw) -> Example:
    """How many elements there are."""
    return Example("Size", [cube(draw)])


# Reductions and rankings


@st.composite
def reduction(draw: Draw, name: str, dtype: str = "float32", of: Any = SIZES, low: float = -2) -> Example:
    """Over any axes, by attribute and by input."""
    chosen = draw(st.sampled_from([None, (), (0,), (-1,), (0, 2), (1, -1), (2, 1, 0)]))
    attributes: dict[str, int] = {"keepdims": draw(st.integers(0, 1))}
    if chosen == ():
        attributes["noop_with_empty_axes"] = draw(st.integers(0, 1))
    inputs: list[Any] = [cube(draw, dtype, of, low, 2), *([] if chosen is None else [ints(*chosen)])]
    return Example(name, inputs, attributes)


@st.composite
def argument(draw: Draw, name: str) -> Example:
    """Where the extreme is, the first or the last of equals."""
    attributes = {
        "axis": draw(AXES), "keepdims": draw(st.integers(0, 1)), "select_last_index": draw(st.integers(0, 1)),
    }  # fmt: skip
    return Example(name, [cube(draw, "int32", FILLED, 0, 3)], attributes)


@st.composite
def running(draw: Draw, name: str) -> Example:
    """In every direction."""
    attributes = {"exclusive": draw(st.integers(0, 1)), "reverse": draw(st.integers(0, 1))}
    axis = np.array(draw(AXES)), None
    return Example(name, [cube(draw, low=-2, high=2), axis], attributes, 26)


@st.composite
def along(draw: Draw, name: str, of: Any = SIZES, expected: Expected | None = None) -> Example:
    """Softmax and its kin, over one axis and over all that follow it."""
    opset = draw(st.sampled_from([13, 11]))
    axis = draw(AXES if opset == 13 else st.integers(0, 2))
    if opset == 13:
        return Example(name, [cube(draw, of=of)], {"axis": axis}, opset, expected=expected)
    x, dims = cube(draw, of=of)

    def flat(x: np.ndarray, axis: int) -> np.ndarray:
        rows = x.reshape(int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:])))
        return SOFTMAX[name](rows).reshape(x.shape)

    return Example(name, [(x, dims)], {"axis": axis}, opset, expected=flat)


def softmax(x: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    e = np.exp(x - x.max(-1, keepdims=True, initial=-np.inf))
    return e / e.sum(-1, keepdims=True)


SOFTMAX: dict[str, Any] = {
    "Softmax": softmax,
    "LogSoftmax": lambda x: np.log(softmax(x)),
    "Hardmax": lambda x: np.eye(x.shape[-1], dtype=x.dtype)[x.argmax(-1)],
}


@st.composite
def top_k(draw: Draw, dtype: str) -> Example:
    """0 to all of an axis, the largest or smallest, with equals among them."""
    axis = draw(AXES)
    x = cube(draw, dtype, FILLED, 0, 3)
    count = draw(st.integers(0, x[0].shape[axis]))
    attributes = {"axis": axis, "largest": draw(st.integers(0, 1))}
    return Example("TopK", [x, ints(count)], attributes, outputs=2, expected=by_sorting)


def by_sorting(x: np.ndarray, count: np.ndarray, axis: int, largest: int) -> tuple[np.ndarray, ...]:
    """A stable sort: of equals the first comes first."""
    order = np.argsort(-x if largest else x, axis, kind="stable").take(range(int(count[0])), axis)
    return np.take_along_axis(x, order, axis), order


# Gathers and scatters


@st.composite
def gather(draw: Draw, dtype: str = "float32") -> Example:
    """Indices of rank 0 to 2, from either end."""
    axis = draw(AXES)
    x = cube(draw, dtype, FILLED)
    n = x[0].shape[axis]
    dims = draw(st.sampled_from([(), ("p",), ("p", "q")]))
    return Example(
        "Gather", [x, tensor(draw, sizes_of(draw, "p", "q"), dims, "int64", -n, n - 1)], {"axis": axis}
    )


@st.composite
def gather_elements(draw: Draw) -> Example:
    """Indices as large as the data, longer or shorter along the axis."""
    axis = draw(st.integers(0, 2))
    sizes = sizes_of(draw, *NMK, of=FILLED) | {"p": draw(SIZES)}
    names = [*NMK]
    names[axis] = "p"
    n = sizes[NMK[axis]]
    indices = tensor(draw, sizes, tuple(names), "int64", -n, n - 1)
    return Example("GatherElements", [tensor(draw, sizes, NMK), indices], {"axis": axis})


@st.composite
def gather_nd(draw: Draw) -> Example:
    """Tuples of 1 to 3 positions, with and without batches."""
    sizes = sizes_of(draw, *NMK, of=FILLED) | {"p": draw(FILLED)}
    batch = draw(st.integers(0, 1))
    depth = draw(st.integers(1, 3 - batch))
    least = min(sizes[name] for name in NMK[batch : batch + depth])
    indices = tensor(draw, sizes, (*NMK[:batch], "p", depth), "int64", -least, least - 1)
    return Example("GatherND", [tensor(draw, sizes, NMK), indices], {"batch_dims": batch})


@st.composite
def scatter_elements(draw: Draw, reduction: str) -> Example:
    """Updates along an axis; without a reduction each position is aimed at once."""
    axis = draw(st.integers(0, 2))
    sizes = sizes_of(draw, *NMK, of=FILLED)
    n = sizes[NMK[axis]]
    sizes["p"] = draw(st.integers(0, n))
    names: list[str] = [*NMK]
    names[axis] = "p"
    updates = tensor(draw, sizes, tuple(names))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    shape = [*updates[0].shape[:axis], *updates[0].shape[axis + 1 :], n]
    picks = np.argsort(rng.random(shape), -1)[..., : sizes["p"]]
    indices = np.moveaxis(picks - n * rng.integers(0, 2, picks.shape), -1, axis)
    inputs: list[Any] = [tensor(draw, sizes, NMK), (indices, tuple(names)), updates]
    return Example("ScatterElements", inputs, {"axis": axis, "reduction": reduction})


@st.composite
def scatter_nd(draw: Draw, reduction: str) -> Example:
    """Slices written at single positions; without a reduction each is aimed at once."""
    sizes = sizes_of(draw, *NMK, of=FILLED)
    sizes["p"] = draw(st.integers(1, sizes["n"]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    places = rng.permutation(sizes["n"])[: sizes["p"], None]
    if reduction != "none":
        places = rng.integers(-sizes["n"], sizes["n"], places.shape)
    inputs: list[Any] = [tensor(draw, sizes, NMK), (places, ("p", 1)), tensor(draw, sizes, ("p", "m", "k"))]
    return Example("ScatterND", inputs, {"reduction": reduction})


@st.composite
def one_hot(draw: Draw) -> Example:
    """Indices inside and outside the depth."""
    depth = draw(st.integers(1, 6))
    indices = tensor(draw, sizes_of(draw, "n", "m"), ("n", "m"), "int64", -depth, depth - 1)
    values = np.array([-1.5, 2.5], np.float32), None
    return Example("OneHot", [indices, (np.array(depth), None), values], {"axis": draw(AXES)})


# Tensors from numbers


@st.composite
def ranges(draw: Draw, dtype: str) -> Example:
    """From, to and by whole numbers of both signs."""
    step = draw(st.sampled_from([-3, -1, 1, 2]))
    ends = (draw(st.integers(-9, 9)), draw(st.integers(-9, 9)), step)
    return Example("Range", [(np.array(v, dtype), None) for v in ends], expected=by_counting)


def by_counting(*ends: np.ndarray) -> np.ndarray:
    """Python's range in the type of its ends."""
    start, limit, step = (end.item() for end in ends)
    return np.arange(start, limit, step, dtype=ends[0].dtype)


@st.composite
def eye_like(draw: Draw) -> Example:
    """Any diagonal."""
    x = tensor(draw, sizes_of(draw, "n", "m"), ("n", "m"))
    return Example("EyeLike", [x], {"k": draw(st.integers(-9, 9)), "dtype": draw(st.sampled_from([1, 6]))})


SUBJECTS: dict[str, Subject] = {
    "Transpose": transpose(),
    "Expand": expand(),
    "Tile": tile(),
    "Concat": concat(),
    "Split": split(),
    "Slice": slices(),
    "DepthToSpace": blocks("DepthToSpace"),
    "SpaceToDepth": blocks("SpaceToDepth"),
    "Trilu": trilu(),
    "ReverseSequence": reverse(),
    "Reshape": view("Reshape", [(-1,), (0, -1), (0, 0, 1, -1), (1, -1, 1)], FILLED),
    "Unsqueeze": view("Unsqueeze", [(0,), (-1,), (1, 3), (4, 0)]),
    "Squeeze": squeeze(),
    "Flatten": flatten(),
    "Shape": shape(),
    "Size": size(),
    **{
        name: reduction(name)
        for name in ("ReduceSum", "ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceProd")
    },
    "ReduceMean": reduction("ReduceMean", of=FILLED),
    "ReduceMax": reduction("ReduceMax", of=FILLED),
    "ReduceMin": reduction("ReduceMin", of=FILLED),
    "ReduceMax-bool": reduction("ReduceMax", "bool", FILLED),
    "ReduceSum-int32": reduction("ReduceSum", "int32"),
    "ReduceProd-int64": reduction("ReduceProd", "int64"),
    "ReduceLogSum": reduction("ReduceLogSum", of=FILLED, low=0.1),
    "ReduceLogSumExp": reduction("ReduceLogSumExp", of=FILLED),
    "ArgMax": argument("ArgMax"),
    "ArgMin": argument("ArgMin"),
    "CumSum": running("CumSum"),
    "CumProd": running("CumProd"),
    "Softmax": along("Softmax", FILLED),
    "LogSoftmax": along("LogSoftmax", FILLED),
    "Hardmax": along("Hardmax", FILLED),
    "TopK": top_k("float32"),
    "TopK-int64": top_k("int64"),
    "Gather": gather(),
    "Gather-bool": gather("bool"),
    "GatherElements": gather_elements(),
    "GatherND": gather_nd(),
    **{f"ScatterElements-{how}": scatter_elements(how) for how in ("none", "add", "mul", "max", "min")},
    **{f"ScatterND-{how}": scatter_nd(how) for how in ("none", "add", "max")},
    "OneHot": one_hot(),
    "Range": ranges("int32"),
    "Range-float32": ranges("float32"),
    "EyeLike": eye_like(),
}


@pytest.mark.parametrize("name", SUBJECTS)
def test_formulas(name: str) -> None:
    hold_by_numpy(SUBJECTS[name])


@pytest.mark.spread
@pytest.mark.parametrize("name", everyday(SUBJECTS))
def test_backends(name: str, channel: str, make_worker: MakeWorker) -> None:
    hold_on(SUBJECTS[name], channel, make_worker)
