"""The plan cache is bounded: thousands of shapes leave as many entries behind as a few do."""

from __future__ import annotations

import gc
from collections.abc import Mapping

import numpy as np
import pytest

from engine import Model, Worker
from engine.runtime.fast_path import FastPath
from engine.runtime.plans import plan_cache
from engine.runtime.plans.plan_cache import KEPT_BYTES, KEPT_PLANS, PlanCache
from engine.runtime.plans.recorded_plan import PLAN_BYTES, RecordedPlan
from tests.engine.conftest import MakeWorker, answers
from tests.engine.runtime.plans.test_symbolic_plans import plan_statically
from tests.graphs import model, node

MOST = KEPT_BYTES // PLAN_BYTES
"""Plans that are kept at most where they are small."""


def squares() -> Model:
    """y = softmax(x x^T) x: its temporaries have n^2 elements."""
    nodes = [
        node("Transpose", ["x"], ["t"]),
        node("MatMul", ["x", "t"], ["p"]),
        node("Softmax", ["p"], ["s"]),
        node("MatMul", ["s", "x"], ["y"]),
    ]
    return model(nodes, {"x": ("float32", ["n", 2])}, {"y": ("float32", None)})


def asked(worker: Worker, n: int) -> None:
    """Schedule once at a size, and check the answer against NumPy."""
    x = np.random.default_rng(n).normal(size=(n, 2)).astype(np.float32)
    worker.schedule(x)
    scores = np.exp(x @ x.T - (x @ x.T).max(1, keepdims=True))
    expected = scores / scores.sum(1, keepdims=True) @ x
    np.testing.assert_allclose(worker.peek_output().download_to_array(), expected, rtol=2e-4, atol=1e-5)


def entries(worker: Worker) -> dict[str, int]:
    """How many objects of each kind a worker keeps for the sizes that it has seen."""
    cache, plans = worker._session.cache, worker._session.symbolic_plans
    gc.collect()
    mine = [x for x in gc.get_objects() if type(x) is FastPath and x.session is worker._session]
    return {
        "plans": len(cache.plans),
        "counted": len(cache._memory._blocks),
        "fast paths": len(mine),
        "found by shapes": len(cache._fast_paths),
        "symbolic plans": len(plans.ready) + len(plans.waiting),
    }


def check_agreement(found: Mapping[str, int]) -> None:
    """What is kept beside the plans are their entries; one plan may be that of all sizes that came once."""
    assert found["plans"] == found["counted"]
    assert found["plans"] - 1 <= found["found by shapes"] <= found["plans"]
    assert found["plans"] <= found["fast paths"] <= found["plans"] + 2


def test_hundreds_of_sizes_leave_few_entries(
    channel: str, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_cache, "KEPT_BYTES", 24 * PLAN_BYTES)
    worker = make_worker(squares(), channel)
    for _ in range(2):  # sizes that came once share one plan, which is not found by shapes
        for n in range(1, 60 if channel != "cpu" else 300):
            asked(worker, n)
    found = entries(worker)
    assert KEPT_PLANS <= found["plans"] <= 25
    check_agreement(found)
    assert found["symbolic plans"] <= 4


@pytest.mark.long
def test_ten_thousand_sizes_leave_few_entries(make_worker: MakeWorker) -> None:
    source = model(
        [node("Mul", ["x", "x"], ["s"]), node("ReduceSum", ["s"], ["y"], keepdims=0)],
        {"x": ("float32", ["n"])},
        {"y": ("float32", None)},
    )
    worker = make_worker(source, "cpu")
    for n in range(1, 10_001):
        assert answers(worker, np.full(n, 2, np.float32))[0] == 4 * n
    found = entries(worker)
    assert found["plans"] <= MOST + 1
    check_agreement(found)


def test_temporaries_count(channel: str, make_worker: MakeWorker) -> None:
    """The scores of 512 rows are a temporary of a megabyte, which is all that is large here."""
    worker = make_worker(squares(), channel)
    cache: PlanCache = worker._session.cache
    asked(worker, 4)
    before = cache.nbytes
    asked(worker, 512)
    assert cache.nbytes - before >= 512 * 512 * 4 + PLAN_BYTES
    # A block that plans share counts once, others for each.
    asked(worker, 500)
    assert cache.nbytes - before >= (2 + (channel != "cpu")) * 512 * 500 + 2 * PLAN_BYTES
    blocks = {b: n for plan in cache.plans.values() for b, n in plan.memory().items()}
    assert cache.nbytes == sum(blocks.values()) + len(cache.plans) * PLAN_BYTES
    for key in [*cache.plans]:
        worker._session.cache.drop(cache.plans, key)
    assert cache.nbytes == 0


def test_large_temporaries_push_plans_out(
    channel: str, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans whose temporaries are their own are dropped by the memory of these."""
    monkeypatch.setattr(plan_cache, "KEPT_BYTES", 40 * PLAN_BYTES)
    # The sizes of one plan share their temporaries; on the CPU, all plans do.
    shared = make_worker(squares(), channel)
    own = plan_statically(make_worker(squares(), channel))
    for n in [*range(256, 256 + 32)] * 2:
        asked(shared, n)
        asked(own, n)
    assert 32 <= len(shared._session.cache.plans) <= 34
    found = len(own._session.cache.plans)
    assert found == 32 if channel == "cpu" else KEPT_PLANS <= found < 24


class Block:
    """A buffer over memory that others may use."""

    def __init__(self, number: int, nbytes: int) -> None:
        self._block = number, nbytes

    def block(self) -> tuple[int, int]:
        """As of `DeviceBuffer`."""
        return self._block

    def release(self) -> None:
        """Nothing to free."""


def plan_of(*blocks: tuple[int, int]) -> RecordedPlan:
    return RecordedPlan(None, owned=[Block(*block) for block in blocks])  # type: ignore[arg-type,misc]


def test_shared_blocks_count_once() -> None:
    cache = PlanCache()
    first, second = plan_of((1, 1000), (2, 10)), plan_of((1, 1000), (3, 500))
    cache.keep("a", first)
    cache.keep("b", second)
    assert cache.nbytes == 1510 + 2 * PLAN_BYTES
    cache.drop(cache.plans, "b")
    assert cache.nbytes == 1010 + PLAN_BYTES
    cache.drop(cache.plans, "a")
    assert cache.nbytes == 0


def test_what_is_recorded_late_counts() -> None:
    cache = PlanCache()
    late = plan_of()
    cache.keep("a", late)
    assert cache.nbytes == PLAN_BYTES
    late.owned.append(Block(1, 7000))  # type: ignore[arg-type]
    cache.measure(late)
    assert cache.nbytes == PLAN_BYTES + 7000
    other = plan_of((2, 9))
    cache.measure(other)  # one that is not kept does not
    assert cache.nbytes == PLAN_BYTES + 7000


def test_the_oldest_unused_plans_are_dropped() -> None:
    cache = PlanCache()
    plans = [plan_of((n, KEPT_BYTES)) for n in range(KEPT_PLANS + 4)]
    plans[1].users = 1
    for n, plan in enumerate(plans):
        cache.keep(n, plan)
        cache.get(0)
    assert list(cache.plans) == [1, *range(6, KEPT_PLANS + 4), 0]
    # What the newest plan uses itself does not push others out.
    cache = PlanCache()
    for n in range(KEPT_PLANS + 4):
        cache.keep(n, plan_of((0, 4 * KEPT_BYTES)))
    assert len(cache.plans) == KEPT_PLANS + 4


def test_continuations_count() -> None:
    cache = PlanCache()
    first, second, third = plan_of((1, 10)), plan_of((2, 20)), plan_of((3, 30))
    cache.keep("a", first)
    cache.keep_continuation(first, "b", second)
    cache.keep_continuation(second, "c", third)
    assert cache.nbytes == 60 + 3 * PLAN_BYTES
    cache.drop(cache.plans, "a")
    assert cache.nbytes == 0
    assert not cache.continuations


def test_the_fast_path_keeps_a_plan_in_use(make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found by its shapes alone counts as used, and is not the first to be dropped."""
    monkeypatch.setattr(plan_cache, "KEPT_BYTES", 0)
    worker = make_worker(squares(), "cpu")
    for n in (3, *range(10, 10 + 2 * KEPT_PLANS), 3):
        asked(worker, n)
    kept = worker._latest
    assert kept is not None
    for n in range(10, 10 + 2 * KEPT_PLANS):
        asked(worker, n)
        asked(worker, 3)
    assert kept.recorded in worker._session.cache.plans.values()
    assert len(worker._session.cache.plans) == KEPT_PLANS
