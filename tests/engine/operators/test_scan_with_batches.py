"""Scan as operator sets before 9 have it, over the entries of a batch: against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from engine import Model, ModelLoader, ShapeError, Worker
from engine.compiler.interpreter import interpret
from tests.engine.conftest import CHANNELS, MakeWorker, answers
from tests.engine.runtime.plans.test_symbolic_plans import count_plans

HEAD = '<ir_version: 3, opset_import: ["": 8]>\n'
Feeds = dict[str, np.ndarray]


def source(batch: int | str, steps: int | str, with_lengths: bool, directions: str = "[0, 1]") -> str:
    """States of two types, the second sequence from its end on, and a tensor that the body captures."""
    names = (f"int64[{batch}] lengths, " if with_lengths else "", "lengths" if with_lengths else "")
    return f"""g ({names[0]}float[{batch}, 2] s, int64[{batch}] c, float[{batch}, {steps}, 2] x,
        float[{batch}, {steps}, 3] y, float[2] around)
        => (float[b1, 2] last, int64[b2] n, float[b3, t1, 2] sums, float[b4, t2, 3] rows, int64[b5, t3] ns) {{
        last, n, sums, rows, ns = Scan<num_scan_inputs = 2, directions = {directions},
            body = each (float[2] p, int64 k, float[2] e, float[3] f)
                => (float[2] q, int64 m, float[2] u, float[3] v, int64 o) {{
                a = Add(p, e)
                b = Mul(a, around)
                q = Tanh(b)
                one = Constant<value = int64 {{3}}>()
                m = Add(k, one)
                u = Neg(q)
                w = Cast<to = 1>(k)
                v = Add(f, w)
                o = Identity(k)
            }}
        >({names[1]}, s, c, x, y)
    }}"""


def model(text: str) -> Model:
    return ModelLoader.load(onnx.parser.parse_model(HEAD + text).SerializeToString())


def feeds_for(batch: int, steps: int, lengths: list[int] | None = None, seed: int = 0) -> Feeds:
    rng = np.random.default_rng(seed)
    sizes = {"s": (batch, 2), "x": (batch, steps, 2), "y": (batch, steps, 3), "around": (2,)}
    found: Feeds = {name: rng.normal(size=size).astype(np.float32) for name, size in sizes.items()}
    found["c"] = rng.integers(0, 9, batch)
    return found if lengths is None else {**found, "lengths": np.array(lengths)}


def run(worker: Worker, feeds: Feeds) -> dict[str, np.ndarray]:
    return dict(zip([o.name for o in worker.model.outputs], answers(worker, feeds), strict=True))


def by_onnxruntime(text: str, feeds: Feeds) -> dict[str, np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    whole = onnx.parser.parse_model(HEAD + text).SerializeToString()
    session = onnxruntime.InferenceSession(whole, options, ["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def check(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for name, array in expected.items():
        assert (found[name].shape, found[name].dtype) == (array.shape, array.dtype)
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)


@pytest.mark.spread
@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize(
    "lengths", [None, [12, 4, 5, 9, 1, 12, 3, 8, 2]], ids=["whole sequences", "with lengths"]
)
def test_sequences_of_a_batch(lengths: list[int] | None, channel: str, make_worker: MakeWorker) -> None:
    text = source(9, 12, lengths is not None)
    worker = make_worker(model(text), channel)
    for seed in range(2):
        feeds = feeds_for(9, 12, lengths, seed)
        check(run(worker, feeds), by_onnxruntime(text, feeds))


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_plan_grows_neither_with_the_batch_nor_with_the_steps(
    channel: str, make_worker: MakeWorker
) -> None:
    sizes = [(10, 10), (10, 10_000), (10_000, 10)]
    for with_lengths in (False, True):
        counts = {
            make_worker(model(source(*size, with_lengths)), channel).plan_report().steps for size in sizes
        }
        assert len(counts) == 1


@pytest.mark.spread
@pytest.mark.parametrize("channel", CHANNELS)
def test_one_plan_serves_all_batches_and_lengths(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(model(source("n", "t", True)), channel)
    run(worker, feeds_for(8, 9, [9] * 8))
    planned = count_plans(worker)
    for batch, steps in ((8, 20), (9, 8)):
        lengths = [*range(1, batch), steps]
        feeds = feeds_for(batch, steps, lengths)
        check(run(worker, feeds), by_onnxruntime(source(batch, steps, True), feeds))
    assert not planned


@pytest.mark.parametrize("shape", [(1, 1), (1, 12), (3, 1), (2, 3)])
@pytest.mark.parametrize("with_lengths", [False, True])
def test_few_steps(shape: tuple[int, int], with_lengths: bool) -> None:
    batch, steps = shape
    text = source(batch, steps, with_lengths)
    feeds = feeds_for(batch, steps, [max(1, steps - b % 2) for b in range(batch)] if with_lengths else None)
    check(interpret(model(text), feeds), by_onnxruntime(text, feeds))


def test_names_of_a_body_and_of_what_is_around_it_do_not_meet() -> None:
    """The body has names that the rewriting would choose first, and captures one that is like its inputs."""
    text = """g (int64[b] lengths, float[2] length, float[3, 2] s, float[3, 4, 2] x)
        => (float[b1, 2] last, float[b2, t, 2] sums) {
        last, sums = Scan<num_scan_inputs = 1, directions = [1],
            body = each (float[2] constant, float[2] Less) => (float[2] Where, float[2] flag) {
                Range = Add(constant, Less)
                Where = Mul(Range, length)
                flag = Identity(Where)
            }
        >(lengths, s, x)
    }"""
    rng = np.random.default_rng(1)
    sizes = {"length": (2,), "s": (3, 2), "x": (3, 4, 2)}
    feeds = {name: rng.normal(size=size).astype(np.float32) for name, size in sizes.items()}
    feeds["lengths"] = np.array([4, 2, 3])
    check(interpret(model(text), feeds), by_onnxruntime(text, feeds))


def test_what_does_not_fit_is_refused_with_the_layer_s_name() -> None:
    made = model(source(2, 3, False, "[0, 1, 0]"))
    with pytest.raises(ShapeError, match=r"Scan.*its directions has 3 entries for 2 tensors"):
        interpret(made, feeds_for(2, 3))
    made = model(source(2, 3, True))
    with pytest.raises(ShapeError, match=r"Scan.*different lengths \[2, 3\]"):
        interpret(made, feeds_for(2, 3, [1, 2, 3]))
