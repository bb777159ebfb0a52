"""RNN, GRU and LSTM against onnxruntime: attributes, directions, lengths and layouts, on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.base.errors import ShapeError
from tests.engine.conftest import MakeWorker, answers
from tests.engine.operators.independent import by_onnxruntime
from tests.engine.operators.single import one_layer, run, structures
from tests.onnx_cases import disagreement

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}
"""How many activations a direction has."""

DIRECTIONS = ("forward", "reverse", "bidirectional")


def inputs_of(
    op_type: str,
    steps: int,
    batch: int,
    width: int,
    hidden: int,
    direction: str = "forward",
    lengths: list[int] | None = None,
    seed: int = 3,
) -> list[np.ndarray | None]:
    """Every input that the operator has, time first."""
    rng = np.random.default_rng(seed)
    d, gates = 2 if direction == "bidirectional" else 1, GATES[op_type] * hidden
    shapes: list[tuple[int, ...]] = [(steps, batch, width), (d, gates, width), (d, gates, hidden)]
    shapes += [(d, 2 * gates), (batch,), (d, batch, hidden)]
    shapes += [(d, batch, hidden), (d, 3 * hidden)] if op_type == "LSTM" else []
    arrays: list[np.ndarray | None] = [rng.normal(size=s).astype(np.float32) for s in shapes]
    arrays[4] = None if lengths is None else np.array(lengths, np.int32)
    return arrays


def check(op_type: str, arrays: list[np.ndarray | None], attributes: dict[str, Any] | None = None) -> None:
    """The engine's answer is onnxruntime's."""
    assert arrays[2] is not None
    attributes = {"hidden_size": arrays[2].shape[2], **(attributes or {})}
    outputs = 3 if op_type == "LSTM" else 2
    expected = by_onnxruntime(op_type, arrays, attributes, outputs=outputs)
    found = run(op_type, arrays, attributes, opset=21, outputs=outputs)
    for a, b in zip(found, expected, strict=True):
        assert disagreement(a, b) < 2e-6


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("op_type", GATES)
def test_directions_and_lengths(op_type: str, direction: str) -> None:
    for lengths in (None, [4, 1, 3], [2, 2, 1]):
        arrays = inputs_of(op_type, 4, 3, 5, 6, direction, lengths)
        check(op_type, arrays, {"direction": direction})


@pytest.mark.parametrize("op_type", GATES)
def test_optional_inputs_may_be_absent(op_type: str) -> None:
    arrays = inputs_of(op_type, 3, 2, 4, 5)
    for position in range(3, len(arrays)):
        check(op_type, [None if i == position else a for i, a in enumerate(arrays)])
    check(op_type, arrays[:3])


ACTIVATIONS: dict[str, tuple[list[float], list[float]]] = {
    "Relu": ([], []),
    "Tanh": ([], []),
    "Sigmoid": ([], []),
    "Affine": ([0.5], [0.25]),
    "LeakyRelu": ([0.2], []),
    "ThresholdedRelu": ([0.3], []),
    "ScaledTanh": ([0.8], [1.2]),
    "HardSigmoid": ([0.3], [0.4]),
    "Elu": ([0.7], []),
    "Softsign": ([], []),
    "Softplus": ([], []),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_each_activation_in_a_plain_layer(name: str) -> None:
    alpha, beta = ACTIVATIONS[name]
    attributes: dict[str, Any] = {"activations": [name]}
    if alpha:
        attributes["activation_alpha"] = alpha
    if beta:
        attributes["activation_beta"] = beta
    check("RNN", inputs_of("RNN", 3, 2, 3, 4), attributes)


@pytest.mark.parametrize("op_type", GATES)
def test_activations_take_alpha_and_beta_in_order(op_type: str) -> None:
    names = ["HardSigmoid", "ScaledTanh", "LeakyRelu"][: FUNCTIONS[op_type]]
    names += ["Sigmoid", "HardSigmoid", "Affine"][: FUNCTIONS[op_type]]
    alphas = [a for i, n in enumerate(names) for a in [0.2 + 0.1 * i] * len(ACTIVATIONS[n][0])]
    betas = [b for i, n in enumerate(names) for b in [0.6 - 0.1 * i] * len(ACTIVATIONS[n][1])]
    attributes: dict[str, Any] = {"activations": names, "direction": "bidirectional"}
    attributes |= {"activation_alpha": alphas} if alphas else {}
    attributes |= {"activation_beta": betas} if betas else {}
    check(op_type, inputs_of(op_type, 3, 2, 3, 4, "bidirectional"), attributes)


@pytest.mark.parametrize("op_type", GATES)
def test_gate_sums_are_clipped(op_type: str) -> None:
    arrays = inputs_of(op_type, 4, 2, 3, 4)
    check(op_type, arrays, {"clip": 0.6})
    if op_type == "GRU":
        check(op_type, arrays, {"clip": 0.6, "linear_before_reset": 1})
    if op_type == "LSTM":
        check(op_type, arrays, {"clip": 0.6, "input_forget": 1})


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_reset_gate_on_the_product(direction: str) -> None:
    for lengths in (None, [1, 4]):
        arrays = inputs_of("GRU", 4, 2, 3, 5, direction, lengths)
        attributes = {"direction": direction, "linear_before_reset": 1}
        check("GRU", arrays, attributes)
        check("GRU", [None if i == 3 else a for i, a in enumerate(arrays)], attributes)


def test_coupled_input_and_forget_gates() -> None:
    arrays = inputs_of("LSTM", 4, 2, 3, 5, "bidirectional", [4, 2])
    check("LSTM", arrays, {"direction": "bidirectional", "input_forget": 1})


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("op_type", GATES)
def test_empty_sequences_yield_zeros(op_type: str, direction: str) -> None:
    check(op_type, inputs_of(op_type, 3, 3, 2, 4, direction, [0, 2, 0]), {"direction": direction})


@pytest.mark.parametrize("op_type", GATES)
def test_no_step_and_no_sequence(op_type: str) -> None:
    """What onnxruntime's LSTM makes of no step at all, for every layer; its GRU aborts there."""
    for steps, batch, lengths in ((0, 2, None), (0, 2, [0, 0]), (3, 0, None)):
        arrays = inputs_of(op_type, steps, batch, 2, 4, "bidirectional", lengths)
        y, *states = run(
            op_type, arrays, {"direction": "bidirectional"}, outputs=3 if op_type == "LSTM" else 2
        )
        np.testing.assert_array_equal(y, np.zeros((steps, 2, batch, 4), np.float32))
        for state in states:
            np.testing.assert_array_equal(state, np.zeros((2, batch, 4), np.float32))


def batch_first(arrays: list[np.ndarray | None]) -> list[np.ndarray | None]:
    """The same inputs for layout 1: the sequence and the states begin with the batch."""
    swapped = (0, 5, 6)
    return [
        np.ascontiguousarray(np.swapaxes(a, 0, 1)) if i in swapped and a is not None else a
        for i, a in enumerate(arrays)
    ]


@pytest.mark.parametrize("op_type", GATES)
def test_batch_first_is_the_same_transposed(op_type: str) -> None:
    outputs = 3 if op_type == "LSTM" else 2
    for direction in DIRECTIONS:
        arrays = inputs_of(op_type, 4, 3, 2, 5, direction, [4, 2, 3])
        attributes = {"hidden_size": 5, "direction": direction}
        expected = by_onnxruntime(op_type, arrays, attributes, outputs=outputs)
        found = run(op_type, batch_first(arrays), {**attributes, "layout": 1}, outputs=outputs)
        assert disagreement(found[0], expected[0].transpose(2, 0, 1, 3)) < 2e-6
        for a, b in zip(found[1:], expected[1:], strict=True):
            assert disagreement(a, b.transpose(1, 0, 2)) < 2e-6


@pytest.mark.parametrize("op_type", GATES)
def test_known_weights_of_two_directions(op_type: str) -> None:
    """Constant weights are cut apart ahead of time, others by kernels."""
    arrays = inputs_of(op_type, 3, 2, 2, 3, "bidirectional")
    attributes = {"hidden_size": 3, "direction": "bidirectional"}
    known = run(op_type, arrays, attributes, known=(1, 2, 3))
    np.testing.assert_array_equal(known[0], run(op_type, arrays, attributes)[0])


@pytest.mark.parametrize("op_type", GATES)
def test_a_longer_sequence_needs_no_new_kernel(op_type: str) -> None:
    def kernels(steps: int, batch: int) -> set[str]:
        arrays = inputs_of(op_type, steps, batch, 4, 5, "bidirectional", [steps] * batch)
        attributes = {"direction": "bidirectional", "layout": 1}
        others = [i for i in range(len(arrays)) if i not in (0, 4)]
        model = one_layer(op_type, batch_first(arrays), attributes, dynamic=(0, 4), known=others)
        return set(structures(model, {"x0": (batch, steps, 4), "x4": (batch,)}))

    assert kernels(40, 3) == kernels(9, 3)
    assert len(kernels(40, 3)) < 20


@pytest.mark.spread
@settings(max_examples=8)
@given(data=st.data())
def test_every_backend_agrees_with_onnxruntime(
    channel: str, make_worker: MakeWorker, data: st.DataObject
) -> None:
    op_type = data.draw(st.sampled_from(sorted(GATES)))
    steps, width = data.draw(st.integers(1, 5)), data.draw(st.sampled_from((1, 2, 7)))
    batch, hidden = data.draw(st.integers(1, 3)), data.draw(st.sampled_from((1, 3, 8)))
    direction = data.draw(st.sampled_from(("reverse", "bidirectional")))
    lengths = [data.draw(st.integers(1, steps)) for _ in range(batch)]
    arrays = inputs_of(op_type, steps, batch, width, hidden, direction, lengths)
    attributes = {"hidden_size": hidden, "direction": direction}
    if op_type == "GRU":
        attributes["linear_before_reset"] = data.draw(st.integers(0, 1))
    outputs = 3 if op_type == "LSTM" else 2
    expected = by_onnxruntime(op_type, arrays, attributes, outputs=outputs)
    batch_major = data.draw(st.booleans())
    if batch_major:
        arrays, attributes["layout"] = batch_first(arrays), 1
        expected = [expected[0].transpose(2, 0, 1, 3), *(e.transpose(1, 0, 2) for e in expected[1:])]
    model = one_layer(op_type, arrays, attributes, outputs=outputs, dynamic=range(len(arrays)))
    feeds = {f"x{i}": a for i, a in enumerate(arrays) if a is not None}
    for found, b in zip(answers(make_worker(model, channel), feeds), expected, strict=True):
        assert disagreement(found, b) < (1e-5 if channel == "cpu" else 1e-4)


def test_errors_name_the_layer() -> None:
    for changes, attributes, message in (
        ({}, {"direction": "backward"}, "direction is 'backward'; one of forward, reverse, bidirectional"),
        ({}, {"layout": 2}, "layout is 2"),
        ({}, {"activations": ["Tanh", "Tanh"]}, "1 activations are needed, not 2"),
        ({}, {"activations": ["Sine"]}, "unknown activation 'Sine'; one of relu, tanh"),
        ({}, {"hidden_size": 5}, "hidden_size is 5, but R \\[1, 4, 4\\] has 4 columns"),
        ({1: (1, 4, 2)}, {}, "for X \\[3, 2, 5\\], W must be \\[1, 4, 5\\], not \\[1, 4, 2\\]"),
        ({3: (1, 4)}, {}, ".*B must be \\[1, 8\\]"),
        ({5: (1, 3, 4)}, {}, ".*an initial state must be \\[1, 2, 4\\]"),
        ({0: (3, 2)}, {}, "takes X and R of rank 3"),
    ):
        arrays = inputs_of("RNN", 3, 2, 5, 4)
        for position, shape in changes.items():
            arrays[position] = np.zeros(shape, np.float32)
        with pytest.raises(ShapeError, match=f"layer 'it' \\(RNN\\): {message}"):
            run("RNN", arrays, attributes)
    arrays = inputs_of("LSTM", 3, 2, 5, 4)
    arrays[7] = np.zeros((1, 4), np.float32)
    with pytest.raises(ShapeError, match=r"P must be \[1, 12\], not \[1, 4\]"):
        run("LSTM", arrays)
