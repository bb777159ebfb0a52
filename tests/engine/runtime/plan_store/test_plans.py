"""Plans on disk: read back they give the same results; whatever they depend on keeps them from being read."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from engine import BackendType, JobSystem, Model, ModelLoader, Worker
from engine.api.custom_operators import operator, remove_operator
from engine.backends.cpu import plan_codec
from engine.backends.cpu.backend import CPUBackend
from engine.backends.cpu.execution.program import CPUProgram
from engine.base import source_files
from engine.device import native
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.runtime.plan_store import files, plans
from engine.runtime.plan_store.cache_keys import engine_hash, model_hash
from tests.engine.conftest import CHANNELS, MakeWorker, answers
from tests.engine.operators.test_loop_rolling import feeds_for, nested
from tests.graphs import mlp, model, node, proto
from tests.networks import reference


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stored plans are on, in a folder of the test's own."""
    monkeypatch.setenv("GAMEGLUE_STORED_PLANS", "on")
    monkeypatch.setattr(files, "folder", lambda: tmp_path)
    return tmp_path


def network(batch: int | str = 1, scale: float = 1.0, pads: int = 1) -> bytes:
    """A convolution, a normalisation that is folded into it, a residual, a product, and a constant output."""
    rng = np.random.default_rng(0)
    constants = {
        "w": scale * rng.normal(size=(5, 3, 3, 3)),
        "s": rng.normal(size=5),
        "b": rng.normal(size=5),
        "m": rng.normal(size=5),
        "v": 1.0 + rng.random(5),
        "p": rng.normal(size=(5 * 36, 7)),
        "side": rng.normal(size=(1, 5, 6, 6)),
    }
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[pads] * 4),
        node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"]),
        node("Relu", ["n"], ["r"]),
        node("Slice", ["r", "from", "to", "axes"], ["cut"]),
        node("Add", ["cut", "side"], ["a"]),
        node("Flatten", ["a"], ["f"]),
        node("MatMul", ["f", "p"], ["y"]),
        node("Identity", ["side"], ["z"]),
    ]
    known = {name: array.astype(np.float32) for name, array in constants.items()}
    known |= {"from": np.array([0, 0]), "to": np.array([6, 6]), "axes": np.array([2, 3])}
    shape = [batch, 3, 6, 6]
    return proto(nodes, {"x": ("float32", shape)}, {"y": ("float32", None), "z": ("float32", None)}, known)


def image(batch: int = 1) -> np.ndarray:
    return np.random.default_rng(batch).normal(size=(batch, 3, 6, 6)).astype(np.float32)


def open_worker(source: bytes) -> Worker:
    return Worker(ModelLoader.load(source), BackendType.CPU)


def was_read(worker: Worker) -> bool:
    """Whether a worker has its plans from disk: nothing was traced."""
    return "planner" not in worker._session.__dict__


def check(worker: Worker, source: bytes, batch: int = 1) -> None:
    """Compare all outputs with onnxruntime's."""
    expected = reference(source, {"x": image(batch)})
    worker.schedule(image(batch))
    for name, wanted in expected.items():
        found = worker.peek_output(name).readback_and_clone().download_to_array()
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_the_second_load_reads_what_the_first_has_written(folder: Path) -> None:
    for expected in (False, True, True):
        with open_worker(network()) as worker:
            assert was_read(worker) is expected
            check(worker, network())
            check(worker, network())
            assert was_read(worker) is expected
    assert len(list(folder.iterdir())) == 1


def test_plans_of_every_tuned_kernel_can_be_stored() -> None:
    """A function that packs weights may hold nothing but what it packs: not the formula, not the planner."""
    rng = np.random.default_rng(3)

    def normal(*shape: int) -> np.ndarray:
        return (rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    known = {
        "first": normal(16, 3, 3, 3), "points": normal(32, 16, 1, 1), "full": normal(64, 32, 3, 3),
        "each": normal(64, 1, 3, 3), "grouped": normal(64, 16, 3, 3), "strided": normal(3, 64, 3, 3),
        "few": normal(2, 3, 3, 3), "w": normal(1, 4 * 8, 18), "r": normal(1, 4 * 8, 8),
        "p": normal(8, 5),
    }  # fmt: skip
    nodes = [
        node("Conv", ["x", "first"], ["a"], pads=[1] * 4, strides=[2, 2]),
        node("Conv", ["a", "points"], ["b"]),
        node("Conv", ["b", "full"], ["c"], pads=[1] * 4),
        node("Relu", ["c"], ["d"]),
        node("Conv", ["d", "each"], ["e"], pads=[1] * 4, group=64),
        node("Conv", ["e", "grouped"], ["f"], pads=[1] * 4, group=4),
        node("MaxPool", ["f"], ["g"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["g", "strided"], ["h"], pads=[1] * 4, strides=[2, 2]),
        node("Conv", ["h", "few"], ["i"], pads=[1] * 4),
        node("Reshape", ["i", "shape"], ["j"]),
        node("LSTM", ["j", "w", "r"], ["k"], hidden_size=8),
        node("Reshape", ["k", "flat"], ["l"]),
        node("MatMul", ["l", "p"], ["y"]),
    ]
    known |= {"shape": np.array([4, 1, 18]), "flat": np.array([4, 8])}
    source = proto(nodes, {"x": ("float32", [1, 3, 48, 48])}, {"y": ("float32", None)}, known)
    x = rng.normal(size=(1, 3, 48, 48)).astype(np.float32)
    for expected in (False, True):
        with open_worker(source) as worker:
            assert was_read(worker) is expected
            worker.schedule(x)
            found = worker.peek_output().readback_and_clone().download_to_array()
            np.testing.assert_allclose(found, reference(source, {"x": x})["y"], rtol=1e-4, atol=1e-4)


def test_steps_that_repeat_are_stored_once(folder: Path) -> None:
    rng = np.random.default_rng(8)
    known = {"w": rng.normal(size=(1, 4 * 8, 6)), "r": rng.normal(size=(1, 4 * 8, 8))}
    layer = node("LSTM", ["x", "w", "r"], ["y", "h", "c"], hidden_size=8, clip=2.0)
    floats = {name: (0.3 * array).astype(np.float32) for name, array in known.items()}
    outputs: dict[str, Any] = dict.fromkeys(("y", "h", "c"), ("float32", None))
    sizes = []
    for steps in (12, 900):
        source = proto([layer], {"x": ("float32", [steps, 2, 6])}, outputs, floats)
        x = rng.normal(size=(steps, 2, 6)).astype(np.float32)
        for was_stored in (False, True):
            with open_worker(source) as worker:
                assert was_read(worker) is was_stored
                worker.schedule(x)
                for name, wanted in reference(source, {"x": x}).items():
                    found = worker.peek_output(name).download_to_array()
                    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
        (file,) = folder.iterdir()
        sizes.append(file.stat().st_size)
        file.unlink()
    assert abs(sizes[0] - sizes[1]) < 200


@pytest.mark.parametrize("channel", CHANNELS)
def test_steps_that_repeat_others_that_repeat_are_stored(channel: str, make_worker: MakeWorker) -> None:
    made = nested(10, 9)
    feeds = feeds_for(made)
    found = []
    for was_stored in (False, True):
        worker = make_worker(made, channel)
        assert was_read(worker) is was_stored
        found.append(answers(worker, feeds))
        worker.dispose()
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_plans_of_quantised_layers_can_be_stored() -> None:
    rng = np.random.default_rng(4)

    def weights(*shape: int) -> np.ndarray:
        return rng.integers(-127, 128, shape).astype(np.int8)

    known: dict[str, Any] = {
        "s": np.float32(0.02), "z": np.uint8(128), "ws": np.float32(0.01), "wz": np.int8(0),
        "full": weights(16, 3, 3, 3), "each": weights(16, 1, 3, 3), "points": weights(8, 16, 1, 1),
        "m": weights(8 * 64, 5), "n": weights(8 * 64, 6), "shape": np.array([1, 8 * 64]),
    }  # fmt: skip
    unit, by = ["s", "z"], ["ws", "wz"]
    nodes = [
        node("QuantizeLinear", ["x", *unit], ["q"]),
        node("QLinearConv", ["q", *unit, "full", *by, *unit], ["a"], pads=[1] * 4),
        node("QLinearConv", ["a", *unit, "each", *by, *unit], ["b"], pads=[1] * 4, group=16),
        node("QLinearConv", ["b", *unit, "points", *by, *unit], ["c"]),
        node("Reshape", ["c", "shape"], ["d"]),
        node("QLinearMatMul", ["d", *unit, "m", *by, *unit], ["e"]),
        node("MatMulInteger", ["d", "n", "z", "wz"], ["i"]),
        node("DequantizeLinear", ["e", *unit], ["y"]),
    ]
    outputs = {"y": ("float32", None), "i": ("int32", None)}
    source = proto(nodes, {"x": ("float32", [1, 3, 8, 8])}, outputs, known)
    x = rng.normal(size=(1, 3, 8, 8)).astype(np.float32)
    expected = reference(source, {"x": x})
    for was_stored in (False, True):
        with open_worker(source) as worker:
            assert was_read(worker) is was_stored
            worker.schedule(x)
            for name, wanted in expected.items():
                np.testing.assert_array_equal(worker.peek_output(name).readback_and_clone(), wanted)


def test_weights_that_a_pass_unpacks_are_made_again_from_the_models(folder: Path) -> None:
    """A float layer's DequantizeLinear of constants is folded for the plan; the file refers to the bytes."""
    rng = np.random.default_rng(5)
    known: dict[str, Any] = {
        "full": rng.integers(-127, 128, (32, 16, 3, 3)).astype(np.int8),
        "each": rng.uniform(0.01, 0.02, 32).astype(np.float32), "zeros": np.zeros(32, np.int8),
        "m": rng.integers(0, 255, (32 * 64, 300)).astype(np.uint8), "s": np.float32(0.03),
        "z": np.uint8(120), "shape": np.array([1, 32 * 64]),
    }  # fmt: skip
    nodes = [
        node("DequantizeLinear", ["full", "each", "zeros"], ["w"], axis=0),
        node("DequantizeLinear", ["m", "s", "z"], ["v"]),
        node("Conv", ["x", "w"], ["a"], pads=[1] * 4),
        node("Reshape", ["a", "shape"], ["b"]),
        node("MatMul", ["b", "v"], ["y"]),
    ]
    source = proto(nodes, {"x": ("float32", [1, 16, 8, 8])}, {"y": ("float32", None)}, known, opset=19)
    x = rng.normal(size=(1, 16, 8, 8)).astype(np.float32)
    # onnxruntime computes such a product in integers, with rounded inputs; ONNX's evaluator does not.
    answers = ReferenceEvaluator(onnx.load_model_from_string(source)).run(["y"], {"x": x})
    expected = np.asarray(next(iter(answers)))
    found = run_twice(source, x)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
    (file,) = folder.iterdir()
    assert file.stat().st_size < known["m"].nbytes / 10


def test_weights_of_joined_layers_are_not_stored_as_floats(folder: Path) -> None:
    """Layers that nobody reads once products are joined were planned, and their results stored."""
    rng = np.random.default_rng(6)
    known: dict[str, Any] = {
        "m": rng.integers(-127, 128, (512, 300)).astype(np.int8), "s": np.float32(0.02), "z": np.uint8(128),
        "ws": np.float32(0.01), "wz": np.int8(0),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["m", "ws", "wz"], ["v"]),
        node("MatMul", ["d", "v"], ["p"]),
        node("QuantizeLinear", ["p", "s", "z"], ["r"]),
        node("DequantizeLinear", ["r", "s", "z"], ["y"]),
    ]
    source = proto(nodes, {"x": ("float32", [4, 512])}, {"y": ("float32", None)}, known)
    x = (0.1 * rng.normal(size=(4, 512))).astype(np.float32)
    found = run_twice(source, x)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], reference(source, {"x": x})["y"])
    (file,) = folder.iterdir()
    assert file.stat().st_size < known["m"].nbytes / 10


def run_twice(source: bytes, x: np.ndarray) -> list[np.ndarray]:
    """The results of a worker that makes its plans, and of one that reads them."""
    found = []
    for was_stored in (False, True):
        with open_worker(source) as worker:
            assert was_read(worker) is was_stored
            worker.schedule(x)
            found.append(worker.peek_output().readback_and_clone().download_to_array())
    return found


def test_a_plan_that_was_read_is_reported_like_one_that_was_made() -> None:
    reports = []
    for _ in range(2):
        with open_worker(network()) as worker:
            before = str(worker.plan_report())
            worker.schedule(image())
            reports.append((before, str(worker.plan_report())))
    assert reports[0] == reports[1]


@pytest.mark.parametrize("changed", [network(scale=2.0), network(batch=2), network(pads=2)])
def test_another_model_is_not_read(changed: bytes) -> None:
    open_worker(network()).dispose()
    with open_worker(changed) as worker:
        assert not was_read(worker)
        check(worker, changed, ModelLoader.load(changed).inputs[0].shape[0])  # type: ignore[index,arg-type]


def test_another_setting_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many threads there are, and what the environment says of kernels, are parts of a plan."""
    open_worker(network()).dispose()
    with JobSystem(3) as jobs, Worker(ModelLoader.load(network()), BackendType.CPU, jobs=jobs) as worker:
        assert not was_read(worker)
    monkeypatch.setattr(plan_codec, "LARGEST", 0)
    with open_worker(network()) as worker:
        assert not was_read(worker)


def test_the_next_time_no_input_shape_is_planned() -> None:
    source = network("batch")
    with open_worker(source) as worker:
        check(worker, source, 3)
        check(worker, source, 2)
    with open_worker(source) as worker:
        check(worker, source, 3)
        assert was_read(worker)
        before = native.process_store().compilations
        check(worker, source, 5)
        assert native.process_store().compilations == before
        check(worker, source, 3)
    with open_worker(source) as worker:
        check(worker, source, 5)
        assert was_read(worker)


def test_a_plan_whose_kernels_are_gone_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    open_worker(network()).dispose()
    monkeypatch.setattr(native.NativeStore, "load_stored", lambda store, words: None)
    with open_worker(network()) as worker:
        assert not was_read(worker)
        check(worker, network())


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


@pytest.mark.parametrize("spoil", [damage, cut])
def test_a_damaged_file_is_not_read(folder: Path, spoil: Callable[[Path], None]) -> None:
    open_worker(network()).dispose()
    (path,) = folder.iterdir()
    spoil(path)
    with open_worker(network()) as worker:
        assert not was_read(worker)
        check(worker, network())
    with open_worker(network()) as worker:
        assert was_read(worker)


def test_an_edit_of_the_engine_makes_plans_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_worker(network()).dispose()
    root = tmp_path / "engine"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "part.py").write_text("SIZE = 1\n")
    found = set()
    for text in ("SIZE = 1\n", "SIZE = 2\n"):
        (root / "sub" / "part.py").write_text(text)
        monkeypatch.setattr(source_files, "_FOLDER", root)
        monkeypatch.setattr(source_files, "AT_IMPORT", source_files.metadata_of(root))
        engine_hash.cache_clear()
        found.add(engine_hash())
        with open_worker(network()) as worker:
            assert not was_read(worker)
    assert len(found) == 2
    engine_hash.cache_clear()


def test_sources_that_change_under_a_running_process_are_not_those_of_its_plans(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are looked at when the import begins, and never again."""
    before = engine_hash()
    monkeypatch.setattr(os, "scandir", None)
    engine_hash.cache_clear()
    assert engine_hash() == before
    assert any("source_files.py " in fact for fact in source_files.AT_IMPORT)


def test_nothing_is_stored_once_the_sources_have_changed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process may have imported some modules before the edit and others after it."""
    monkeypatch.setattr(source_files, "metadata_of", lambda folder: ("another.py 1 2 3",))
    open_worker(network()).dispose()
    assert list(folder.iterdir()) == []
    monkeypatch.undo()
    monkeypatch.setenv("GAMEGLUE_STORED_PLANS", "on")
    monkeypatch.setattr(files, "folder", lambda: folder)
    open_worker(network()).dispose()
    assert len(list(folder.iterdir())) == 1


def test_a_plan_of_another_calling_convention_is_not_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_worker(network()).dispose()
    monkeypatch.setattr(plans, "_FORM", b"GGPLAN3 0\n")
    with open_worker(network()) as worker:
        assert not was_read(worker)
        check(worker, network())


def test_a_plan_tells_how_many_arguments_its_kernels_are_called_with() -> None:
    open_worker(network()).dispose()
    file = plans.plan_file(ModelLoader.load(network()), CPUBackend())
    assert file is not None
    assert file.read is not None
    with open_worker(network()) as worker:
        (recorded,) = worker._session.cache.plans.values()
        program = recorded.submissions[0].program
        assert isinstance(program, CPUProgram)
        assert program.commands is not None
        starts = [*program.commands.array[:, 1].tolist()]
        sizes = [(after - start) // 8 for start, after in pairwise(starts)]
    assert len(sizes) >= 3
    assert sizes == [*file.words(file.read).values()][: len(sizes)]


def test_operators_of_a_games_own_are_not_stored(folder: Path) -> None:
    """What they do is no part of the key."""

    @operator("Halve", domain="game.test")
    def halve(k: Builder, x: Value) -> Value:
        return k.elementwise(lambda v: v * 0.5, x)

    try:
        source = proto([node("Relu", ["x"], ["y"])], {"x": ("float32", [4])}, {"y": ("float32", [4])})
        made = onnx.load_from_string(source)
        made.graph.node[0].op_type, made.graph.node[0].domain = "Halve", "game.test"
        made.opset_import.append(onnx.helper.make_opsetid("game.test", 1))
        open_worker(made.SerializeToString()).dispose()
        assert list(folder.iterdir()) == []
    finally:
        remove_operator("Halve", domain="game.test")


def test_plans_that_stop_for_numpy_functions_are_not_stored(folder: Path) -> None:
    source = proto([node("Unique", ["x"], ["y"])], {"x": ("float32", [4])}, {"y": ("float32", None)})
    for _ in range(2):
        with open_worker(source) as worker:
            worker.schedule(np.array([0, 1, 0, 2], np.float32))
            np.testing.assert_array_equal(worker.copy_output().download_to_array(), [0, 1, 2])
    assert list(folder.iterdir()) == []


def test_only_the_latest_files_are_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_FILES", 2)
    for seed in range(3):
        open_worker(mlp((3, 4, 2), seed)).dispose()
    assert len(list(folder.glob("*.plan"))) == 2
    monkeypatch.setattr(files, "MOST_BYTES", 1)
    open_worker(mlp((3, 4, 2), 3)).dispose()
    assert list(folder.glob("*.plan")) == []


def test_it_can_be_turned_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAMEGLUE_STORED_PLANS", "off")
    assert plans.plan_file(ModelLoader.load(network()), CPUBackend()) is None
    open_worker(network()).dispose()
    assert list(folder.iterdir()) == []


def variants() -> dict[str, Model]:
    """Models of which no two may share a plan."""

    def one(attributes: dict[str, Any], dims: list[int | str | None], w: np.ndarray) -> Model:
        layer = node("Gemm", ["x", "w"], ["y"], **attributes)
        return model([layer], {"x": ("float32", dims)}, {"y": ("float32", None)}, {"w": w})

    w = np.arange(16, dtype=np.float32).reshape(4, 4)
    other = w.copy()
    other[3, 3] += 1
    return {
        "plain": one({}, [2, 4], w),
        "elements": one({}, [2, 4], other),
        "order": one({}, [2, 4], np.ascontiguousarray(w.T)),
        "attribute": one({"transB": 1}, [2, 4], w),
        "kind of attribute": one({"transB": 1, "alpha": 2.0}, [2, 4], w),
        "size": one({}, [3, 4], w),
        "name": one({}, ["2", 4], w),
        "open": one({}, [None, 4], w),
    }


def test_digests_tell_models_apart() -> None:
    models = variants()
    assert len({model_hash(m, "a") for m in models.values()}) == len(models)
    assert model_hash(models["plain"], "a") != model_hash(models["plain"], "b")
    for again in variants().values():
        assert model_hash(again, "a") in {model_hash(m, "a") for m in models.values()}


def test_edits_of_large_constants_are_told_apart() -> None:
    """Signs are high bits, which a product alone would never mix: two of them would cancel each other."""
    plain = np.random.default_rng(0).normal(size=1_000_003).astype(np.float32)

    def digest(*edits: tuple[int, float]) -> str:
        array = plain.copy()
        for position, value in edits:
            array[position] = value
        made = model(
            [node("Add", ["x", "a"], ["y"])], {"x": ("float32", [1])}, {"y": ("float32", None)}, {"a": array}
        )
        return model_hash(made, "")

    flips = [(position, -plain[position]) for position in (1, 129, 257)]
    found = {digest(), digest((1_000_002, 1.0)), digest((0, plain[64]), (64, plain[0]))}
    found |= {digest(flips[0]), digest(flips[1]), digest(flips[0], flips[1]), digest(*flips)}
    assert len(found) == 7
    assert digest() == digest((3, plain[3]))
