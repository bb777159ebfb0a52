"""Memory that grows: when it does, by how much, ahead of need, and when it is given back."""

from __future__ import annotations

import pytest

from engine.backends.gl.pixel.layout import TexelLayout
from engine.backends.growable_memory import _UNUSED, GrowableBlock
from engine.base.errors import OutOfMemoryError

MB = 1 << 20


class Blocks(GrowableBlock[str]):
    """Memory of a device with so many bytes."""

    def __init__(self, limit: int = 1 << 40) -> None:
        super().__init__(1, limit)
        self.there_is = limit
        self.made: list[int] = []

    def allocate(self, size: int) -> str:
        if size > self.there_is:
            raise OutOfMemoryError(f"{size} bytes")
        self.made.append(size)
        return f"{size} bytes"


def used(memory: Blocks, *sizes: int) -> str:
    found = ""
    for size in sizes:
        memory.record_use(size)
        found = memory.reserve(size)
    return found


def test_a_single_size_takes_what_it_needs() -> None:
    memory = Blocks()
    assert used(memory, 1000, 1000, 1000) == "1000 bytes"
    assert memory.made == [1000]
    assert memory.next_size() is None


def test_it_grows_by_half() -> None:
    memory = Blocks()
    used(memory, 1000, 1001, 1500, 1400)
    assert memory.made == [1000, 1501]
    used(memory, 1502)
    assert memory.made == [1000, 1501, 2253]


def test_sizes_near_to_what_there_is_ask_for_more() -> None:
    memory = Blocks()
    used(memory, 1000, 700)
    assert memory.next_size() is None
    used(memory, 900)
    assert memory.needs_growth(900)
    size = memory.next_size()
    assert size == 1500
    # One attempt for what there is.
    assert not memory.needs_growth(900)
    memory.adopt(size, memory.allocate(size))
    assert used(memory, 1300) == "1500 bytes"
    assert memory.needs_growth(1300)
    assert not memory.needs_growth(1100)


def test_a_size_that_grows_by_one_finds_its_memory() -> None:
    """As a cache of keys and values does."""
    memory = Blocks()
    missing = 0
    for size in range(64, 4096):
        memory.record_use(size)
        missing += not memory.fits(size)
        memory.reserve(size)
        if memory.needs_growth(size) and (ahead := memory.next_size()) is not None:
            memory.adopt(ahead, memory.allocate(ahead))
    assert missing <= 2
    assert len(memory.made) < 16
    assert memory.held_bytes() < 2 * 4096


def test_no_more_than_the_device_allows() -> None:
    memory = Blocks(limit=1200)
    used(memory, 1000, 1100)
    assert memory.made == [1000, 1200]
    used(memory, 1150)
    assert memory.next_size() is None
    with pytest.raises(OutOfMemoryError):
        used(memory, 1300)
    assert used(memory, 1200) == "1200 bytes"


def test_where_memory_is_scarce_it_takes_what_it_needs() -> None:
    memory = Blocks()
    used(memory, 1000)
    memory.there_is = 1200
    assert used(memory, 1100) == "1100 bytes"


def test_memory_that_others_have_made_larger_stays() -> None:
    memory = Blocks()
    used(memory, 1000, 2000)
    memory.adopt(1500, "late")
    assert memory.memory == "3000 bytes"


def test_what_is_far_too_large_is_given_back() -> None:
    memory = Blocks()
    used(memory, 8 * MB, 40 * MB)
    for size in range(_UNUSED):
        used(memory, MB + size)
    # The large one was among the last sizes.
    assert memory.held_bytes() == 60 * MB
    for size in range(_UNUSED):
        used(memory, MB + size)
    for size in range(_UNUSED):
        used(memory, MB + size)
    assert memory.held_bytes() < 2 * MB


def test_what_is_used_now_and_then_is_kept() -> None:
    memory = Blocks()
    for number in range(10 * _UNUSED):
        used(memory, 40 * MB if number % _UNUSED == 7 else MB + number)
    assert len(memory.made) <= 3


@pytest.mark.parametrize("layers", [False, True])
@pytest.mark.parametrize("texels", [1, 9, 100, 1000, 8191, 8192, 10_000, 123_456, 4_000_000])
def test_a_larger_layout_holds_half_as_many_texels_again(texels: int, layers: bool) -> None:
    layout = TexelLayout.of(texels, 16384, layers)
    larger = layout.larger(16384)
    assert larger.shift >= layout.shift
    assert larger.height >= layout.height
    wanted = TexelLayout.of(texels + texels // 3, 16384, layers)
    assert larger.shift >= wanted.shift
    assert larger.height >= wanted.height
    assert larger.texels <= max(4 * layout.texels, 40 * larger.width)
    assert larger.height & (larger.height - 1)
    # What is a little smaller than the larger one is near to it.
    near = larger.smaller()
    assert (near.shift, near.height) < (larger.shift, larger.height)
