"""The calling convention of compiled kernels, pinned: code and plans that are stored rely on it.

Where one of these fails, raise `engine.device.native.prebuilt.ABI` and write the new convention down here.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from engine.backends.cpu.backend import CPUBackend
from engine.backends.cpu.execution.arguments import count_words
from engine.compiler.plan import BufferSpec, Plan, Step, StoredKernel
from engine.device.jobs.command_list import CommandList
from engine.device.jobs.system import JobSystem
from engine.device.native import NativeSource, NativeStore, store
from engine.device.native.pool import CompilePool
from engine.device.native.prebuilt import ABI
from engine.kernels.word_encoding import as_word
from engine.runtime.plan_store import plans
from tests.engine.device.native.test_store import kernel, load_one


def words_of(
    space: tuple[int, ...], values: tuple[int | float, ...], is_tuned: bool = False
) -> list[int | str]:
    """The words of a recorded step of 1 ms, with names for addresses."""
    step = Step("layer", "type", StoredKernel("key", "name", is_tuned, 1e6), space, values, ("x",), "y")
    specs = {name: BufferSpec(name, 9, np.dtype(np.float32), "input") for name in ("x", "y")}
    backend = CPUBackend(deterministic=True)
    backend._functions["key"] = 8
    buffers = {name: backend.create(9, spec.dtype) for name, spec in specs.items()}
    commands = backend.record(Plan([step], specs), buffers).commands
    assert commands is not None
    words = list((ctypes.c_int64 * count_words(step)).from_address(int(commands.array[0, 1])))
    names = {buffer.address: name for name, buffer in buffers.items()}
    return [names.get(word, word) for word in words]


def test_the_number_belongs_to_this_convention() -> None:
    assert ABI == 1
    assert NativeSource("name", "text", "entry").signature == "void(int64, int64, int64)"
    assert as_word(0.5) == 0x3FE0000000000000
    assert as_word(2**64 - 1) == -1
    # Sizes, run-time arguments (a float as its bits), then the addresses of the output and of the inputs.
    assert words_of((2,), (4, 0.5), is_tuned=True) == [2, 4, as_word(0.5), "y", "x"]
    # Printed kernels also get the number of blocks of a row, and the elements of one.
    assert words_of((2, 700), (4,)) == [2, 700, 2, 350, 4, "y", "x"]
    assert words_of((7,), (4,)) == [7, 4, "y", "x"]
    # A command: function, arguments, range, grain.
    assert CommandList([(8, 16, 100, 10)]).array.tolist() == [[8, 16, 100, 10]]
    single = CommandList.single(8, (5, 6), 100, 10, None)
    function, arguments, total, grain = single.array[0].tolist()
    assert (function, total, grain) == (8, 100, 10)
    assert arguments == single.array.ctypes.data + 64


def test_the_kernels_read_their_words_as_they_are_written(tmp_path: Path) -> None:
    """A compiled kernel against the words of its args block."""
    source = kernel("store_f64(y, i, 0.0)", "words").source.rpartition("def ")[0] + (
        "def words(args, begin, end):\n"
        "    target = arg_i64(args, 3)\n"
        "    store_f64(target, 0, arg_i64(args, 0) + arg_i64(args, 1))\n"
        "    store_f64(target, 1, arg_f64(args, 2))\n"
        "    store_i64(target, 2, begin)\n"
        "    store_i64(target, 3, end)\n"
    )
    result = np.zeros(4)
    address = load_one(NativeStore(tmp_path, CompilePool(limit=1)), NativeSource("words", source, "words"))
    words = np.array([20, 3, as_word(0.25), result.ctypes.data], np.int64)
    commands = CommandList([(address, words.ctypes.data, 11, 16)], (words, result))
    with JobSystem(1) as jobs:
        jobs.submit(commands).complete()
    assert result[:2].tolist() == [23.0, 0.25]
    assert result.view(np.int64)[2:].tolist() == [0, 11]


def test_another_number_is_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = NativeSource("name", "text", "entry").key
    monkeypatch.setattr(store, "ABI", ABI + 1)
    assert NativeSource("name", "text", "entry").key != before


def test_stored_plans_say_the_number() -> None:
    assert f"GGPLAN7 {ABI}\n".encode() == plans._FORM
