"""Models of the field suite at many sizes: on every backend, one plan for all answers as one for each set."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import ModelLoader, Worker
from engine.backends import table
from engine.base.errors import EngineError
from tests.engine.conftest import CHANNELS, device_for
from tests.field.feeds import read_feeds
from tests.field.preparing import SOURCES, SourceFailed, prepare
from tests.open_sizes import check_sizes, plan_statically

IS_WHOLE = os.environ.get("GAMEGLUE_FIELD", "sample") == "all"

COUNTS = {"cpu": 50 if IS_WHOLE else 20}
OTHERS = 50 if IS_WHOLE else 4
"""How many sets of sizes each model is run at, by backend, and on the others: they may be software here."""

MOST_ELEMENTS = 1 << 22
"""Elements of inputs above which a model takes too long for that many sizes."""


def models() -> Iterator[Path]:
    """Files of models whose inputs are tensors with dynamic dimensions."""
    for source in SOURCES if IS_WHOLE else SOURCES[:1]:
        try:
            yield from sorted(prepare(source, [] if IS_WHOLE else ["--sample"]).glob("*.onnx"))
        except SourceFailed:
            continue  # its own suite reports that


@pytest.mark.long
@pytest.mark.parametrize("channel", CHANNELS)
def test_any_sizes_answer_as_plans_of_their_own_do(channel: str, request: pytest.FixtureRequest) -> None:
    backend, device = table.named(channel).backend_type, device_for(channel, request)
    checked = 0
    for path in models():
        feeds = read_feeds(path)
        try:
            model = ModelLoader.load(path)
        except EngineError:
            continue  # the field suite's to report
        are_tensors = all(item.kind == "tensor" and item.shape is not None for item in model.inputs)
        is_open = any(not isinstance(dim, int) for item in model.inputs for dim in item.shape or ())
        if not feeds or not are_tensors or not is_open:
            continue
        if sum(array.size for array in feeds[0].values()) > MOST_ELEMENTS:
            continue
        with (
            Worker(model, backend, device=device) as worker,
            plan_statically(Worker(model, backend, device=device)) as apart,
        ):
            try:
                count = COUNTS.get(channel, OTHERS)
                assert check_sizes(worker, apart, feeds[0], count, seed=5), path.name
            except AssertionError as error:
                raise AssertionError(f"{path.name}: {error}") from error
        checked += 1
    assert checked
