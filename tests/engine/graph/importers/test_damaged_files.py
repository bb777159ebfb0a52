"""Whatever is in a file, it loads or raises one of our own errors, soon and without much memory."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from engine.base.errors import EngineError, ModelImportError
from engine.graph.importers.onnx_importer import read_onnx


def small_model() -> bytes:
    """A model of a few hundred bytes with one of everything that the reader handles."""
    weights = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.ones(2, np.float32), "s"),
        numpy_helper.from_array(np.array([1, 3])),
        [2, 2],
    )
    outside = TensorProto(name="e", data_type=1, dims=[2], data_location=TensorProto.EXTERNAL)
    outside.external_data.add(key="location", value="weights.bin")
    outside.external_data.add(key="length", value="8")
    branch = helper.make_graph(
        [helper.make_node("Relu", ["m"], ["out"])], "b", [], [helper.make_tensor_value_info("out", 1, None)]
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    function = helper.make_function(
        "own", "F", ["a"], ["c"], [helper.make_node("Neg", ["a"], ["c"])], imports
    )
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w"], ["m"], name="gemm", alpha=0.5, transB=1),
            helper.make_node("F", ["m"], ["f"], domain="own"),
            helper.make_node("Constant", [], ["k"], value_ints=[2, 8]),
            helper.make_node("Constant", [], ["cond"], value=numpy_helper.from_array(np.array(True))),
            helper.make_node("Reshape", ["f", "k"], ["r"]),
            helper.make_node("If", ["cond"], ["y"], then_branch=branch, else_branch=branch),
        ],
        "g",
        [helper.make_tensor_value_info("x", 1, ["n", 4])],
        [helper.make_tensor_value_info(name, 1, None) for name in ("y", "r")],
        [weights, outside],
        sparse_initializer=[sparse],
    )
    return helper.make_model(graph, opset_imports=imports, functions=[function]).SerializeToString()


SMALL = small_model()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    (folder / "weights.bin").write_bytes(np.ones(2, np.float32).tobytes())
    return folder


def loads_or_refuses(data: bytes, folder: Path | None) -> bool:
    """Whether `data` loads; anything that is raised and not ours fails the test."""
    try:
        read_onnx(data, folder, "fuzzed").summary()
    except EngineError:
        return False
    return True


def test_the_undamaged_model_loads(folder: Path) -> None:
    assert loads_or_refuses(SMALL, folder)


def test_every_truncation_loads_or_is_refused(folder: Path) -> None:
    loaded = [length for length in range(len(SMALL)) if loads_or_refuses(SMALL[:length], folder)]
    # Cut between two top-level fields a file is still a graph, as nothing after it is needed by every model.
    assert len(loaded) <= 3


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF], ids=hex)
def test_every_flipped_byte_loads_or_is_refused(folder: Path, mask: int) -> None:
    tracemalloc.start()
    try:
        for position in range(len(SMALL)):
            data = bytearray(SMALL)
            data[position] ^= mask
            loads_or_refuses(bytes(data), folder)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 2**20


edits = st.lists(
    st.tuples(
        st.integers(0, len(SMALL) - 1),
        st.sampled_from(["flip", "delete", "insert", "repeat"]),
        st.integers(0, 255),
        st.integers(1, 40),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=300)
@given(edits)
@example([(0, "delete", 0, 40)])
def test_edited_files_load_or_are_refused(folder: Path, changes: list[tuple[int, str, int, int]]) -> None:
    data = bytearray(SMALL)
    for where, how, byte, length in changes:
        position = where % max(1, len(data))
        if how == "flip" and data:
            data[position] ^= byte
        elif how == "delete":
            del data[position : position + length]
        elif how == "insert":
            data[position:position] = bytes([byte]) * length
        else:
            data[position:position] = data[position : position + length]
    loads_or_refuses(bytes(data), folder)


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_load_or_are_refused(data: bytes) -> None:
    loads_or_refuses(data, None)


def field(number: int, payload: bytes) -> bytes:
    """A protobuf field with its length; the onnx package itself refuses to build what is nested deep."""
    head, length = bytes([number << 3 | 2]), len(payload)
    while length >= 128:
        head, length = head + bytes([length & 127 | 128]), length >> 7
    return head + bytes([length]) + payload


@pytest.mark.parametrize("depth", [20, 60, 400])
def test_deep_nesting_loads_or_is_refused(depth: int) -> None:
    output = onnx.GraphProto(output=[onnx.ValueInfoProto(name="out")]).SerializeToString()
    relu = onnx.GraphProto(node=[helper.make_node("Relu", ["x"], ["out"])])
    graph = relu.SerializeToString() + output
    start = onnx.NodeProto(op_type="If", input=["x"], output=["out"]).SerializeToString()
    branch = onnx.AttributeProto(name="then_branch", type=onnx.AttributeProto.GRAPH).SerializeToString()
    for _ in range(depth):
        graph = field(1, start + field(5, branch + field(6, graph))) + output
    graph += onnx.GraphProto(input=[helper.make_tensor_value_info("x", 1, None)]).SerializeToString()
    opset = onnx.ModelProto(ir_version=8, opset_import=[helper.make_opsetid("", 17)]).SerializeToString()
    assert loads_or_refuses(opset + field(7, graph), None) == (depth == 20)


FOREIGN = {
    "empty": (b"", "empty"),
    "text": (b"hello, I am a text file renamed\n" * 30, "text file.*hello"),
    "page": (b"<!DOCTYPE html><html><body>404</body></html>", "text file.*<!DOCTYPE"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 12\n", "git lfs pull"),
    "torch": (b"PK\x03\x04" + bytes(200), "export the network to ONNX"),
    "tflite": (b"\x1c\0\0\0TFL3" + bytes(200), "TensorFlow Lite"),
    "noise": (bytes(range(255, 0, -1)) * 4, "damaged"),
    "cut": (SMALL[: len(SMALL) // 2], "damaged, cut short"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_files_of_other_kinds_are_told_apart(tmp_path: Path, case: str) -> None:
    data, words = FOREIGN[case]
    path = tmp_path / "thing.onnx"
    path.write_bytes(data)
    with pytest.raises(ModelImportError, match=f"(?s)thing.onnx is not an ONNX model.*{words}"):
        read_onnx(path)


def test_a_missing_file_lists_near_matches(tmp_path: Path) -> None:
    for name in ("digits.onnx", "digits_large.onnx", "other.txt"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(ModelImportError, match="no file.*did you mean 'digits.onnx'") as caught:
        read_onnx(tmp_path / "Digit.onnx")
    assert "other.txt" not in str(caught.value)
    with pytest.raises(ModelImportError, match="it holds 'digits.onnx', 'digits_large.onnx'"):
        read_onnx(tmp_path / "squeezenet.onnx")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelImportError, match="nor is there a folder"):
        read_onnx(tmp_path / "nowhere" / "net.onnx")


def test_a_folder_is_refused_and_its_models_listed(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(SMALL)
    with pytest.raises(ModelImportError, match="is a folder.*'net.onnx'"):
        read_onnx(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    with pytest.raises(ModelImportError, match="not an ordinary file"):
        read_onnx(tmp_path / "pipe.onnx")


def test_a_name_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(ModelImportError):
        read_onnx("a\0b.onnx")
