"""What compute and fragment shaders share: the function text, arguments, words."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from engine.backends.gl.glsl import float_literal, pack_arguments
from engine.backends.gl.glsl_functions import FUNCTIONS, functions_for
from engine.backends.gl.storage import STORAGE_FORMATS, from_memory, to_memory, type_refusal
from engine.backends.gpu.integers import beyond_32_bits
from engine.base.dtypes import as_dtype
from engine.device.gl.device import GLDevice
from tests.conftest import RunChild

ALL_FUNCTIONS = functions_for("".join(FUNCTIONS.values()))
VERTEX = "#version 330\nvoid main() { gl_Position = vec4(0.0); }"


@pytest.mark.gl
def test_every_function_is_glsl_3_30(gl_device: GLDevice) -> None:
    main = "out float o;\nvoid main() { o = k_pow(k_erf(gl_FragCoord.x), 2.5); }"
    fragment = f"#version 330\n{ALL_FUNCTIONS}\n{main}"
    with gl_device.current():
        gl_device.ctx.program(vertex_shader=VERTEX, fragment_shader=fragment).release()


def test_a_text_brings_what_it_calls_and_no_more() -> None:
    text = functions_for("float y = k_tanh(x);")
    for name in ("k_tanh", "k_exp", "k_scale", "k_nan"):
        assert text.count(f"float {name}(") + text.count(f"bool {name}(") == 1
    assert "k_sin" not in text
    assert functions_for("float y = x;") == ""
    # Definitions stand before their uses.
    assert text.index("float k_exp(") < text.index("float k_tanh(")


def test_arguments_are_packed_by_slot() -> None:
    words = pack_arguments(("index", "float32", "uint32", "int64"), (-3, 1.5, 2**32 - 1, 2**40), (7,))
    assert words.dtype == np.int32
    assert len(words) == 8
    bits = struct.unpack("<i", struct.pack("<f", 1.5))[0]
    # What 32 bits cannot hold saturates: it stands for "no limit".
    assert words.tolist() == [-3, bits, -1, 2**31 - 1, 7, 0, 0, 0]


@pytest.mark.parametrize("x", [0.1, 1e-7, 3.4e38, -2.5, 1e-40, float("inf"), float("-inf"), 16777217.0])
def test_literals_keep_every_bit(x: float) -> None:
    text = float_literal(x)
    if "uintBitsToFloat" in text:
        got = np.uint32(int(text[len("uintBitsToFloat(0x") : -2], 16)).view(np.float32)
    else:
        got = np.float32(text.strip("()"))
        assert "." in text or "e" in text
    assert got == np.float32(x)
    assert float_literal(float("nan")) == "uintBitsToFloat(0x7fc00000u)"


@pytest.mark.parametrize("name", STORAGE_FORMATS)
def test_memory_holds_every_type_in_its_own_size(name: str) -> None:
    data = np.array([0, 1, 100]).astype(as_dtype(name))
    elements = to_memory(data)
    assert elements.itemsize == min(data.itemsize, 4)
    back = from_memory(elements, data.dtype)
    assert back.dtype == data.dtype
    assert back.tobytes() == data.tobytes()


def test_what_32_bits_cannot_hold_is_seen() -> None:
    assert beyond_32_bits(np.array([1, 2**31])) == 2**31
    assert beyond_32_bits(np.array([-(2**31) - 1])) == -(2**31) - 1
    assert beyond_32_bits(np.array([2**32], np.uint64)) == 2**32
    assert beyond_32_bits(np.array([2**32 - 1], np.uint64)) is None
    assert beyond_32_bits(np.array([], np.int64)) is None
    assert beyond_32_bits(np.array([1e30])) is None
    assert "float64" in (type_refusal(["float32", "float64"]) or "")
    assert type_refusal(["float16", "int64", "bool"]) is None


@pytest.mark.gl
def test_an_older_context_is_refused(run_child: RunChild, held_to_3_3: dict[str, str]) -> None:
    code = (
        "from engine.backends.gl.compute.backend import GLComputeBackend\n"
        "from engine.device.gl.device import GLDevice\n"
        "from engine.base.errors import DeviceError\n"
        "try:\n    GLComputeBackend(GLDevice())\nexcept DeviceError as error:\n    print(error)\n"
    )
    assert "compute shaders need OpenGL 4.3" in run_child(code, **held_to_3_3)
