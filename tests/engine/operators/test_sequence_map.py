"""SequenceMap over tensors of one shape, of which a plan holds one run: against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.engine.conftest import CHANNELS, MakeWorker, answers
from tests.engine.test_random_control_flow import HEAD, load

Feeds = dict[str, np.ndarray]


def source(
    split: str = "axis = 0, keepdims = 0", join: str = "axis = 0, new_axis = 1", size: str = ""
) -> str:
    """Two sequences and a tensor, mapped to two sequences that are joined."""
    return f"""g (float[n, m, 3] x, float[n, m, 3] w, float[3] z) => (float[a, b, c] y, float[d, e, f] v) {{
        {size}
        xs = SplitToSequence<{split}>(x{", size" if size else ""})
        ws = SplitToSequence<{split}>(w{", size" if size else ""})
        ys, vs = SequenceMap(xs, ws, z) <
            body = each (float[k, 3] e, float[k, 3] f, float[3] c) => (float[k, 3] g, float[k, 3] h) {{
                p = Mul(e, f)
                g = Add(p, c)
                h = Neg(f)
            }}
        >
        y = ConcatFromSequence<{join}>(ys)
        v = ConcatFromSequence<{join}>(vs)
    }}"""


MAPS = {
    "rows": source(),
    "along another axis": source("axis = 1, keepdims = 0", "axis = 1, new_axis = 1"),
    "a new last axis": source(join="axis = -1, new_axis = 1"),
    "joined without a new axis": source().replace("float[k, 3]", "float[k, l, 3]").replace(
        "keepdims = 0", "keepdims = 1"
    ).replace(", new_axis = 1", ""),
    "joined along the middle": source("axis = 1", "axis = 1").replace("float[k, 3]", "float[k, l, 3]"),
    "pieces of two": source("axis = 0", "axis = 0", "size = Constant<value = int64 {2}>()").replace(
        "float[k, 3]", "float[k, l, 3]"
    ),
}  # fmt: skip


def feeds_for(n: int, m: int, seed: int = 0) -> Feeds:
    rng = np.random.default_rng(seed)
    sizes = {"x": (n, m, 3), "w": (n, m, 3), "z": (3,)}
    return {name: rng.normal(size=size).astype(np.float32) for name, size in sizes.items()}


def by_onnxruntime(text: str, feeds: Feeds) -> list[np.ndarray]:
    whole = onnx.parser.parse_model(HEAD + text).SerializeToString()
    found: list[np.ndarray] = onnxruntime.InferenceSession(whole).run(None, feeds)
    return found


@pytest.mark.spread
@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("kind", MAPS)
def test_a_sequence_of_one_shape(kind: str, channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(load(MAPS[kind]), channel)
    for size in ((20, 18), (3, 2), (16, 20)):
        feeds = feeds_for(*size)
        for one, other in zip(answers(worker, feeds), by_onnxruntime(MAPS[kind], feeds), strict=True):
            assert one.shape == other.shape
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def test_pieces_of_two_sizes_are_mapped_one_by_one(make_worker: MakeWorker) -> None:
    text = MAPS["pieces of two"]
    feeds = feeds_for(19, 2)
    worker = make_worker(load(text), "cpu")
    expected = by_onnxruntime(text, feeds)
    for one, other in zip(answers(worker, feeds), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_plan_does_not_grow_with_the_sequence(channel: str, make_worker: MakeWorker) -> None:
    counts = set()
    for length in (10, 1_000):
        made = load(MAPS["rows"].replace("[n, m, 3]", f"[{length}, 2, 3]"))
        counts.add(make_worker(made, channel).plan_report().steps)
    assert len(counts) == 1


WAITS = """g (float[10, 3] x, float limit) => (float[a, 3] y, seq(float[3]) parts, float[3] one) {
    xs = SplitToSequence<axis = 0, keepdims = 0>(x)
    ys = SequenceMap(xs) <body = each (float[3] e) => (float[3] f) { f = Exp(e) }>
    total = ReduceSum<keepdims = 0>(x)
    fits = Less(total, limit)
    parts = If(fits) <
        then_branch = same () => (seq(float[3]) s) { s = Identity(ys) },
        else_branch = twice () => (seq(float[3]) t) {
            t = SequenceMap(ys) <
                body = again (float[3] g) => (float[3] h) {
                    a = Exp(g) b = Neg(a) c = Neg(b) d = Neg(c) e = Neg(d) f = Neg(e) i = Neg(f) h = Neg(i)
                }
            >
        }
    >
    y = ConcatFromSequence<axis = 0, new_axis = 1>(parts)
    at = Constant<value = int64 {3}>()
    one = SequenceAt(ys, at)
}"""


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("limit", [100.0, -100.0])
def test_a_sequence_outlives_a_stop(limit: float, channel: str, make_worker: MakeWorker) -> None:
    """What is joined, or mapped on, after data has arrived was made before."""
    worker = make_worker(load(WAITS), channel)
    x = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
    worker.schedule(x, np.array(limit, np.float32))
    once = np.exp(x)
    expected = once if limit > 0 else -np.exp(once)
    np.testing.assert_allclose(worker.peek_output("y").download_to_array(), expected, rtol=1e-5)
    np.testing.assert_allclose(worker.peek_output("one").download_to_array(), once[3], rtol=1e-5)
    parts: Any = worker.peek_output("parts")
    for row, other in zip(parts, expected, strict=True):
        np.testing.assert_allclose(row.download_to_array(), other, rtol=1e-5)
