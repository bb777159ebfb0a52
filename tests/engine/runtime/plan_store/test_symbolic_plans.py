"""Plans with symbolic sizes on disk: a warm start has one at once, with the answers of a plan of its own."""

from __future__ import annotations

import ast
import math
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import BackendType, Model, ModelLoader, Worker
from engine.backends import table
from engine.compiler.plan import StoredKernel
from engine.kernels.size import DEFERRABLE
from engine.runtime.plan_store import files, symbolic_plans
from engine.runtime.plan_store.streams import UNREADABLE, StreamReader, StreamWriter
from engine.runtime.plan_store.symbolic_plans import SIZES, StoredSymbolicPlan, restored
from tests.engine.conftest import CHANNELS, MakeWorker
from tests.engine.runtime.plans.test_symbolic_continuations import NETWORKS as STOPPING
from tests.engine.runtime.plans.test_symbolic_plans import (
    NETWORKS,
    Feeds,
    answers,
    compile_now,
    feeds_for,
    plan_statically,
)

ROOT = Path(symbolic_plans.__file__).resolve().parents[3]

STORED = ("sequences", "recurrent", "scalars", "resized", "digits", "swarm", "chatter", "upscale")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stored plans are on, in a folder of the test's own."""
    monkeypatch.setenv("GAMEGLUE_STORED_PLANS", "on")
    monkeypatch.setattr(files, "folder", lambda: tmp_path)
    return tmp_path


GPU_STORED = ("sequences", "recurrent", "resized", "swarm")
"""Those for the GPU backends; the others in the long suite."""

STOPPING_STORED = ("halves", "branches", "rows", "fixed rows", "ranged", "detector")
"""Networks whose plans stop for data."""


def on_backends(names: Sequence[str], quick: Sequence[str]) -> list[Any]:
    """Networks on all backends; in the quick suite, some of them on the GPU backends."""
    return [
        pytest.param(
            name,
            channel,
            id=f"{name}-{channel}",
            marks=() if channel == "cpu" or name in quick else pytest.mark.long,
        )
        for channel in CHANNELS
        for name in names
    ]


def open_worker(model: Model) -> Worker:
    return Worker(model, BackendType.CPU)


def was_planned(worker: Worker) -> bool:
    """Whether anything was planned: what is read from disk needs no planner."""
    return "planner" in worker._session.__dict__


def feeds_that_are_taken(worker: Worker, rng: np.random.Generator) -> Feeds:
    """Inputs of sizes that a stored plan's guards accept."""
    plans = worker._session.symbolic_plans
    for _ in range(500):
        feeds = feeds_for(worker.model, rng)
        sizes = plans.sizes.of({name: x.shape for name, x in feeds.items()})
        assert sizes is not None
        if any(plan.accepts(sizes.numbers) for plan in plans.ready):
            return feeds
    raise AssertionError("no sizes are taken")


@pytest.mark.spread
@pytest.mark.parametrize(("name", "channel"), on_backends(STORED, GPU_STORED))
def test_a_warm_start_answers_new_sizes_without_planning(
    name: str, channel: str, make_worker: MakeWorker
) -> None:
    make, _ = NETWORKS[name]
    model = make()
    first = make_worker(model, channel)  # plans
    rng = np.random.default_rng(17)
    apart, worker = plan_statically(make_worker(model, channel)), make_worker(model, channel)
    plans = worker._session.symbolic_plans
    assert plans.ready
    assert not plans.unbound
    asked = [feeds_that_are_taken(worker, rng) for _ in range(6)]
    found = [answers(worker, feeds) for feeds in asked]
    reports = [worker.plan_report()]
    assert not was_planned(worker)
    for feeds, mine in zip(asked, found, strict=True):
        for one, other in zip(mine, answers(apart, feeds), strict=True):
            np.testing.assert_array_equal(one, other)
    answers(first, asked[-1])
    assert reports == [first.plan_report()]


def test_workers_of_a_model_share_what_was_read() -> None:
    model = NETWORKS["digits"][0]()
    open_worker(model).dispose()
    rng = np.random.default_rng(3)
    with open_worker(model) as one, open_worker(model) as other:
        plans = [
            [plan for _, _, plan in worker._session.symbolic_plans.everything()] for worker in (one, other)
        ]
        assert plans[0]
        for mine, theirs in zip(*plans, strict=True):
            assert mine.recorder is theirs.recorder
            assert mine.lowered is not theirs.lowered
        for _ in range(4):
            feeds = feeds_that_are_taken(one, rng)
            for a, b in zip(answers(one, feeds), answers(other, feeds), strict=True):
                np.testing.assert_array_equal(a, b)


def test_workers_of_a_model_may_be_created_at_the_same_time() -> None:
    model = NETWORKS["chatter"][0]()
    open_worker(model).dispose()
    begin = threading.Barrier(3)

    def lengths_of_records(_: int) -> list[int]:
        begin.wait()
        with open_worker(model) as worker:
            begin.wait()
            return [len(plan.record.lines) for plan in worker._session.symbolic_plans.ready]

    with open_worker(model) as alone:
        expected = [len(plan.record.lines) for plan in alone._session.symbolic_plans.ready]
    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(lengths_of_records, range(3))) == [expected] * 3


def stopping_worker(model: Model, channel: str, make_worker: MakeWorker) -> Worker:
    """A worker that uses plans behind stops as soon as they are made."""
    worker = make_worker(model, channel)
    compile_now(worker._session.backends["native"])
    return worker


@pytest.mark.parametrize(("name", "channel"), on_backends(STOPPING_STORED, ("halves", "branches")))
def test_a_warm_start_goes_on_behind_stops_without_planning(
    name: str, channel: str, make_worker: MakeWorker
) -> None:
    source, draw = STOPPING[name]
    model = ModelLoader.load(source())
    rng = np.random.default_rng(7)
    asked = [draw(rng) for _ in range(5)]
    first = stopping_worker(model, channel, make_worker)
    expected = [answers(first, feeds) for feeds in asked]
    reported = first.plan_report()
    first.dispose()
    worker = make_worker(model, channel)
    assert not worker._session.symbolic_plans.unbound
    found = [answers(worker, feeds) for feeds in asked]
    assert not was_planned(worker)
    assert worker.plan_report() == reported
    assert reported.waits
    apart = plan_statically(make_worker(model, channel))
    for feeds, mine, theirs in zip(asked, found, expected, strict=True):
        for one, two, other in zip(mine, theirs, answers(apart, feeds), strict=True):
            np.testing.assert_array_equal(one, other)
            np.testing.assert_array_equal(two, other)


def test_a_restored_plan_is_continued_for_other_data(make_worker: MakeWorker) -> None:
    """It is planned once more up to its stop; what follows is stored with it."""
    source, draw = STOPPING["halves"]
    model = ModelLoader.load(source())
    feeds = draw(np.random.default_rng(2))
    make_worker(model, "cpu").dispose()
    worker = stopping_worker(model, "cpu", make_worker)
    for plan in worker._session.symbolic_plans.ready:
        plan.following.release()
    mine = answers(worker, feeds)
    assert was_planned(worker)
    (plan,) = worker._session.symbolic_plans.ready
    assert plan.following.ready, "it was planned with symbolic sizes"
    worker.dispose()
    again = make_worker(model, "cpu")
    for one, other in zip(answers(again, feeds), mine, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not was_planned(again)


def test_a_plan_that_continues_none_is_not_read() -> None:
    model = ModelLoader.load(STOPPING["halves"][0]())
    open_worker(model).dispose()
    with open_worker(model) as worker:
        stored = worker._session.stored
        assert stored is not None
        assert [data.before for data in stored.symbolic_plans][:2] == [-1, 0]
        for before in (-2, 1, 7):
            spoilt = [*stored.symbolic_plans[:1], stored.symbolic_plans[1]._replace(before=before)]
            with pytest.raises(ValueError, match="continues none"):
                worker._session.symbolic_plans.restore(replace(stored, symbolic_plans=spoilt))


def test_a_restored_plan_repeats_as_many_steps_as_there_are() -> None:
    """The lengths of a scan are one plan's, whose steps are stored once."""
    make, _ = NETWORKS["summed"]
    model = make()
    lengths = (20, 9, 400, 31)
    feeds: list[Feeds] = [{"x": np.arange(2.0 * n, dtype=np.float32).reshape(n, 2)} for n in lengths]
    with open_worker(model) as first:
        for given in feeds:
            answers(first, given)
    with open_worker(model) as worker:
        for given in feeds:
            (found,) = answers(worker, given)
            np.testing.assert_allclose(found, np.cumsum(given["x"], 0), rtol=1e-5)
        assert not was_planned(worker)


@pytest.mark.parametrize("name", ["digits", "chatter", "resized"])
def test_a_restored_plan_yields_the_numbers_of_the_first(name: str) -> None:
    """Its record of sizes, its steps' costs and its guards are the same at any sizes."""
    make, _ = NETWORKS[name]
    model = make()
    rng = np.random.default_rng(5)
    with open_worker(model) as first, open_worker(model) as second:
        plans = first._session.symbolic_plans.waiting, second._session.symbolic_plans.ready
        before, after = (sorted(each, key=lambda plan: plan.made_for) for each in plans)
        assert len(before) == len(after) > 0
        for mine, other in zip(before, after, strict=True):
            assert mine.recorder.guards == other.recorder.guards
            steps = zip(
                mine.lowered.segments[0].plan.steps, other.lowered.segments[0].plan.steps, strict=True
            )
            assert all(isinstance(b.kernel, StoredKernel) and a.output == b.output for a, b in steps)
            for _ in range(20):
                shapes = {k: x.shape for k, x in feeds_for(model, rng).items()}
                sizes = first._session.symbolic_plans.sizes.of(shapes)
                assert sizes is not None
                numbers = sizes.numbers
                assert mine.accepts(numbers) == other.accepts(numbers)
                if mine.accepts(numbers):
                    ((one,), _), ((two,), _) = mine.filled(numbers), other.filled(numbers)
                    assert [(s.space, s.values) for s in one.plan.steps] == [
                        (s.space, s.values) for s in two.plan.steps
                    ]
                    assert one.plan.buffers == two.plan.buffers


def test_a_plan_for_other_sizes_is_stored_for_the_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a warm start's plans refuse is planned once, not in every process."""
    model = NETWORKS["digits"][0]()
    (item,) = model.inputs
    with monkeypatch.context() as patch:
        patch.setattr("engine.runtime.plans.stored_plans.MOST_OPEN_PLANS", 1)
        with open_worker(model) as worker:
            answers(worker, feeds_for(model, np.random.default_rng(0)))
    with open_worker(model) as worker:
        (plan,) = worker._session.symbolic_plans.ready
        n = next(n for n in (1, 2, 5, 300, 5000) if not plan.accepts((n,)))
        shape = [d if isinstance(d, int) else n for d in item.shape or ()]
        x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
        expected = answers(worker, {item.name: x})
        assert was_planned(worker)
    for _ in range(2):
        with open_worker(model) as worker:
            assert len(worker._session.symbolic_plans.ready) == 2
            for one, other in zip(answers(worker, {item.name: x}), expected, strict=True):
                np.testing.assert_array_equal(one, other)
            assert not was_planned(worker)


def test_slices_and_reports_take_a_restored_plan() -> None:
    model = NETWORKS["digits"][0]()
    open_worker(model).dispose()
    rng = np.random.default_rng(3)
    with open_worker(model) as worker:
        feeds = feeds_that_are_taken(worker, rng)
        whole = answers(worker, feeds)
        for _ in worker.schedule_iterable(feeds):
            pass
        for item, expected in zip(model.outputs, whole, strict=True):
            np.testing.assert_array_equal(worker.peek_output(item.name).download_to_array(), expected)
        assert worker.plan_report().steps >= 5
        costs = [step.kernel.nanoseconds for step in worker._plans[0].segments[0].plan.steps]  # type: ignore[attr-defined]
        assert all(type(cost) in (int, float) and math.isfinite(cost) and cost >= 0 for cost in costs)


def stored_plan(model: Model) -> StoredSymbolicPlan:
    open_worker(model).dispose()
    with open_worker(model) as worker:
        stored = worker._session.stored
        assert stored is not None
        return stored.symbolic_plans[0]


def test_only_deferrable_functions_are_called() -> None:
    stored = stored_plan(NETWORKS["swarm"][0]())
    instructions, *others = stored.sizes
    for name in ("os.system", "builtins.print", "engine.runtime.plan_store.files.write"):
        spoilt = (*instructions, ("call", name, 1))
        with pytest.raises(LookupError, match=name):
            restored(stored._replace(sizes=(spoilt, *others)))
    for instruction in (("frobnicate", 1, 2), ("add", 1), ("add", "a", 2)):
        with pytest.raises(UNREADABLE):
            restored(stored._replace(sizes=((*instructions, instruction), *others)))
    with pytest.raises(ValueError, match="another number of sizes"):
        restored(stored._replace(sizes=(instructions, others[0], others[1][:-1], *others[2:])))


@pytest.mark.parametrize("name", STORED)
def test_sizes_are_read_as_they_were_written(name: str) -> None:
    sizes = stored_plan(NETWORKS[name][0]()).sizes
    assert StreamReader(StreamWriter({}).body(SIZES, sizes), {}).value(SIZES) == sizes


def functions_of(call: ast.Call) -> list[ast.expr]:
    """What a call of `deferred` or `Builder.table` says is to be called with sizes."""
    if isinstance(call.func, ast.Name) and call.func.id == "deferred":
        found = call.args[0]
    elif isinstance(call.func, ast.Attribute) and call.func.attr == "table" and len(call.args) > 2:
        found = call.args[2]
    else:
        return []
    return [found.body, found.orelse] if isinstance(found, ast.IfExp) else [found]


def is_deferrable(name: str) -> bool:
    """Whether a stored plan may name a function; its module is imported then."""
    try:
        return DEFERRABLE[name] is not None
    except KeyError:
        return False


def test_every_function_that_is_called_with_sizes_is_deferrable() -> None:
    for entry in table.BACKENDS:
        assert entry.load()
    found: set[str] = set()
    for path in (ROOT / "engine").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "deferred(" not in text and ".table(" not in text:
            continue
        tree = ast.parse(text)
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        imported = {
            (alias.asname or alias.name): f"{part.module}.{alias.name}"
            for part in ast.walk(tree)
            if isinstance(part, ast.ImportFrom)
            for alias in part.names
        }
        for call in ast.walk(tree):
            for part in functions_of(call) if isinstance(call, ast.Call) else ():
                if isinstance(part, ast.Name):
                    found.add(imported.get(part.id, f"{module}.{part.id}"))
    # A closure cannot be named: models that need it are planned in every process.
    assert {name for name in found if not is_deferrable(name)} <= {
        "engine.kernels.evaluate_sizes.evaluated",
        "engine.kernels.size.function",
        "engine.operators.builder.function",
    }
    assert {name for name, made in DEFERRABLE.items() if not isinstance(made, type)} <= found
