"""Buffers that are alive at the same time never share memory, and sharing never costs more than none."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from engine.compiler.memory_planner import assign_offsets, assign_slots

Lifetimes = dict[str, tuple[int, int]]


@st.composite
def buffers(draw: st.DrawFn) -> tuple[dict[str, int], Lifetimes]:
    """Sizes and lifetimes of a few buffers."""
    count = draw(st.integers(0, 12))
    names = [f"b{i}" for i in range(count)]
    sizes = {n: draw(st.integers(1, 300)) for n in names}
    spans: Lifetimes = {}
    for n in names:
        first = draw(st.integers(0, 10))
        spans[n] = (first, first + draw(st.integers(0, 6) | st.just(400)))
    return sizes, spans


def meet(spans: Lifetimes, a: str, b: str) -> bool:
    return spans[a][0] <= spans[b][1] and spans[b][0] <= spans[a][1]


def most_alive(sizes: dict[str, int], spans: Lifetimes) -> int:
    """The bytes that are needed at some step, whatever the placement."""
    steps = range(max((last for _, last in spans.values()), default=0) + 1)
    return max((sum(sizes[n] for n, (a, b) in spans.items() if a <= s <= b) for s in steps), default=0)


@given(buffers(), st.sampled_from([1, 16, 64]))
def test_place(made: tuple[dict[str, int], Lifetimes], alignment: int) -> None:
    sizes, spans = made
    offsets, total = assign_offsets(sizes, spans, alignment)
    assert set(offsets) == set(sizes)
    assert all(o >= 0 and o % alignment == 0 and o + sizes[n] <= total for n, o in offsets.items())
    for a, b in combinations(sizes, 2):
        if meet(spans, a, b):
            assert offsets[a] + sizes[a] <= offsets[b] or offsets[b] + sizes[b] <= offsets[a]
    assert most_alive(sizes, spans) <= total <= sum(-(-s // alignment) * alignment for s in sizes.values())


@given(buffers())
def test_share(made: tuple[dict[str, int], Lifetimes]) -> None:
    sizes, spans = made
    slots, slot_sizes = assign_slots(sizes, spans)
    assert set(slots) == set(sizes)
    assert set(slots.values()) == set(range(len(slot_sizes)))
    for n, slot in slots.items():
        assert slot_sizes[slot] >= sizes[n]
    for a, b in combinations(sizes, 2):
        if meet(spans, a, b):
            assert slots[a] != slots[b]
    assert most_alive(sizes, spans) <= sum(slot_sizes) <= sum(sizes.values())


def test_a_chain_of_equal_buffers_needs_two() -> None:
    spans = {f"b{i}": (i, i + 1) for i in range(10)}
    sizes = dict.fromkeys(spans, 100)
    assert assign_offsets(sizes, spans, 64)[1] == 2 * 128
    assert assign_slots(sizes, spans)[1] == [100, 100]
