"""Recurrent layers of known weights, which the CPU runs as one kernel, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import BackendType, ModelLoader, Worker
from engine.backends.cpu.codegen.task_partition import cut_step
from engine.backends.cpu.codegen.tiles import AVX2, AVX512, NEON, PORTABLE, Tile
from engine.backends.cpu.kernels import recurrence
from engine.backends.cpu.kernels.matmul import matmul
from engine.backends.cpu.kernels.recurrence import PART_NS
from engine.device.jobs.system import JobSystem
from tests.graphs import node, proto
from tests.peer import open_session

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
RNG = np.random.default_rng()


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Each test draws the same numbers, whichever ran before it."""
    RNG.bit_generator.state = np.random.default_rng(4).bit_generator.state


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32) / np.float32(2)


def layer(
    op_type: str, direction: str, width: int, hidden: int, *, with_b: bool = True, with_states: bool = True,
    outputs: int | None = None, tail: bool = False, steps: int | str = "T", batch: int | str = "N",
) -> bytes:  # fmt: skip
    """One layer of constant weights; `tail` puts an activation behind Y."""
    d, gates = (2 if direction == "bidirectional" else 1), GATES[op_type] * hidden
    constants = {"w": normal(d, gates, width), "r": normal(d, gates, hidden)}
    inputs: dict[str, tuple[str, list[int | str | None]]] = {"x": ("float32", [steps, batch, width])}
    names = ["x", "w", "r", ""]
    if with_b:
        constants["b"] = normal(d, 2 * gates)
        names[3] = "b"
    all_outputs = ["y", "h", "c"] if op_type == "LSTM" else ["y", "h"]
    if with_states:
        for state in all_outputs[1:]:
            inputs[f"{state}0"] = ("float32", [d, batch, hidden])
        names += ["", *(f"{s}0" for s in all_outputs[1:])]
    made = all_outputs[: outputs or len(all_outputs)]
    attributes: dict[str, Any] = {"direction": direction, "hidden_size": hidden}
    if op_type == "GRU":
        attributes["linear_before_reset"] = 1
    nodes = [node(op_type, names, made, **attributes)]
    if tail:
        nodes.append(node("Tanh", ["y"], ["z"]))
        made = ["z", *made[1:]]
    return proto(nodes, inputs, dict.fromkeys(made, ("float32", None)), constants)


def check(data: bytes, sizes: dict[str, int]) -> None:
    session = open_session(data)
    feeds = {}
    for item in session.get_inputs():
        feeds[item.name] = normal(*(n if isinstance(n, int) else sizes[n] for n in item.shape))
    names = [output.name for output in session.get_outputs()]
    expected = session.run(None, feeds)
    with Worker(ModelLoader.load(data), BackendType.CPU) as worker:
        for _ in range(2):  # states of a run do not leak into the next
            worker.schedule(feeds)
            for name, wanted in zip(names, expected, strict=True):
                got = worker.peek_output(name).download_to_array()
                np.testing.assert_allclose(got, wanted, atol=2e-6)


@pytest.mark.parametrize("op_type", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_directions(op_type: str, direction: str) -> None:
    data = layer(op_type, direction, 5, 20)
    for steps, batch in ((1, 1), (4, 3), (3, 17)):
        check(data, {"T": steps, "N": batch})


@pytest.mark.parametrize("op_type", GATES)
def test_what_is_absent(op_type: str) -> None:
    check(layer(op_type, "forward", 7, 33, with_b=False, with_states=False), {"T": 5, "N": 2})
    check(layer(op_type, "bidirectional", 7, 16, outputs=1, with_states=False), {"T": 5, "N": 2})


def test_an_activation_behind_the_layer() -> None:
    check(layer("GRU", "forward", 4, 16, outputs=1, tail=True), {"T": 3, "N": 2})


def test_layout() -> None:
    """Batch first is the transposed layer (onnxruntime has time first alone)."""
    x, w, r, h0 = normal(3, 4, 5), normal(2, 12, 5), normal(2, 12, 4), normal(2, 3, 4)
    found = []
    for layout in (0, 1):
        attributes = {"direction": "bidirectional", "linear_before_reset": 1, "layout": layout}
        given = {"x": x if layout else x.swapaxes(0, 1), "h0": h0.swapaxes(0, 1) if layout else h0}
        data = proto(
            [node("GRU", ["x", "w", "r", "", "", "h0"], ["y", "h"], **attributes)],
            {name: ("float32", array.shape) for name, array in given.items()},
            {"y": ("float32", None), "h": ("float32", None)},
            {"w": w, "r": r},
        )
        with Worker(ModelLoader.load(data), BackendType.CPU) as worker:
            worker.schedule(given)
            found.append([worker.peek_output(n).download_to_array() for n in ("y", "h")])
    np.testing.assert_allclose(found[1][0], found[0][0].transpose(2, 0, 1, 3), atol=2e-6)
    np.testing.assert_allclose(found[1][1], found[0][1].swapaxes(0, 1), atol=2e-6)


def test_the_steps_of_a_sequence_are_one_kernel() -> None:
    model = ModelLoader.load(layer("LSTM", "forward", 8, 16, outputs=1, with_states=False))
    with Worker(model, BackendType.CPU) as worker:
        steps = set()
        for length in (9, 90):
            worker.schedule(x=normal(length, 1, 8))
            worker.peek_output("y").download_to_array()
            steps.add(worker.plan_report().steps)
    assert len(steps) == 1


def test_parts_of_a_step() -> None:
    assert cut_step(3000.0, 50, 8, 1, 2, PART_NS) == (2,)
    assert cut_step(3000.0, 50, 8, 2, 2, PART_NS) == (1,), "a direction for each thread"
    assert cut_step(3000.0, 50, 8, 2, 4, PART_NS) == (2,)
    assert cut_step(3000.0, 1, 8, 1, 2, PART_NS) == (1,), "too little for two threads"
    assert cut_step(700.0, 500, 8, 1, 2, PART_NS) == (1,), "too little between two meetings"
    assert cut_step(3000.0, 50, 2, 1, 16, PART_NS) == (2,), "no more than there are units"
    assert cut_step(1.0, 1, 1, 64, 2, PART_NS) == (1,)


@pytest.mark.parametrize("patience", [recurrence.PATIENCE, -(1 << 40)], ids=["waits", "leaves"])
@pytest.mark.parametrize(("op_type", "direction"), [("LSTM", "reverse"), ("GRU", "bidirectional")])
def test_threads_share_the_units_of_a_step(
    op_type: str, direction: str, patience: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as there are units, whoever comes late or leaves: to the bit what one thread computes."""
    monkeypatch.setattr(recurrence, "PART_NS", 1.0)
    monkeypatch.setattr(recurrence, "PATIENCE", patience)
    model = ModelLoader.load(layer(op_type, direction, 8, 97))
    d = 2 if direction == "bidirectional" else 1
    feeds = {"x": normal(60, 3, 8)} | {f"{s}0": normal(d, 3, 97) for s in "hc"[: len(model.inputs) - 1]}
    found = []
    for threads, runs in ((1, 1), (2, 100), (5, 100)):
        with JobSystem(threads) as jobs, Worker(model, BackendType.CPU, jobs=jobs) as worker:
            for _ in range(runs):
                worker.schedule(feeds)
                found.append([worker.peek_output(o.name).download_to_array() for o in model.outputs])
    for got in found[1:]:
        for array, wanted in zip(got, found[0], strict=True):
            np.testing.assert_array_equal(array, wanted)


@pytest.mark.long
@pytest.mark.parametrize("tile", [AVX512, AVX2, NEON, PORTABLE], ids=["avx512", "avx2", "neon", "portable"])
def test_every_processors_tile_computes_the_same(tile: Tile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "host_tile", lambda: tile)
    monkeypatch.setattr(recurrence, "host_tile", lambda: tile)
    for op_type in GATES:
        check(layer(op_type, "bidirectional", 6, 21), {"T": 3, "N": 9})
