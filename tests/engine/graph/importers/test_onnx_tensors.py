"""Every element type of ONNX, and weight files: only inside the model's folder, sizes checked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine.base.errors import ModelImportError
from engine.graph.importers.onnx_importer import read_onnx
from engine.graph.importers.onnx_tensors import WeightFolder, read_sparse_tensor, read_tensor

ELEMENT_TYPES = [kind for name, kind in TensorProto.DataType.items() if name not in ("UNDEFINED", "STRING")]


@pytest.mark.parametrize("kind", ELEMENT_TYPES, ids=TensorProto.DataType.Name)
@pytest.mark.parametrize("raw", [True, False], ids=["raw", "typed"])
@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (3, 5)], ids=str)
def test_every_numeric_type_is_read(kind: int, raw: bool, shape: tuple[int, ...]) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    values = (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape).astype(dtype)
    if raw:
        tensor = numpy_helper.from_array(values, "t")
    else:
        plain = complex if values.dtype.kind == "c" else float
        tensor = helper.make_tensor("t", kind, shape, values.reshape(-1).astype(plain))
    assert tensor.HasField("raw_data") == raw
    array = read_tensor(tensor, WeightFolder(None), "t")
    assert array.dtype == dtype
    assert array.shape == shape
    assert not array.flags.writeable
    np.testing.assert_array_equal(array.astype(complex), values.astype(complex))


def test_small_types_keep_their_values() -> None:
    """The stored bits of each type, against values worked out by hand."""
    int4 = TensorProto(data_type=TensorProto.INT4, dims=[3], raw_data=bytes([0xF7, 0x08]))
    assert read_tensor(int4, WeightFolder(None), "t").astype(int).tolist() == [7, -1, -8]
    bfloat16 = TensorProto(data_type=TensorProto.BFLOAT16, dims=[2], raw_data=bytes([0x80, 0x3F, 0x20, 0xC0]))
    array = read_tensor(bfloat16, WeightFolder(None), "t")
    assert array.dtype == ml_dtypes.bfloat16
    assert array.astype(float).tolist() == [1.0, -2.5]
    float8 = TensorProto(data_type=TensorProto.FLOAT8E4M3FN, dims=[2], raw_data=bytes([0x38, 0xC0]))
    assert read_tensor(float8, WeightFolder(None), "t").astype(float).tolist() == [1.0, -2.0]


def test_odd_booleans_read_as_true() -> None:
    tensor = TensorProto(data_type=TensorProto.BOOL, dims=[3], raw_data=bytes([0, 2, 255]))
    array = read_tensor(tensor, WeightFolder(None), "t")
    assert array.view(np.uint8).tolist() == [0, 1, 1]


def test_strings_are_objects() -> None:
    tensor = TensorProto(data_type=TensorProto.STRING, dims=[2], string_data=[b"a", "bé".encode()])
    array = read_tensor(tensor, WeightFolder(None), "t")
    assert array.dtype == object
    assert array.tolist() == ["a", "bé"]


BAD_TENSORS = {
    "too few bytes": TensorProto(data_type=1, dims=[2], raw_data=b"1234"),
    "too many bytes": TensorProto(data_type=1, dims=[1], raw_data=b"12345678"),
    "too few items": TensorProto(data_type=1, dims=[3], float_data=[1.0]),
    "no data": TensorProto(data_type=1, dims=[3]),
    "huge": TensorProto(data_type=1, dims=[2**40, 2**40]),
    "huge but empty": TensorProto(data_type=1, dims=[0, 2**62, 2**62]),
    "negative": TensorProto(data_type=1, dims=[-1], raw_data=b""),
    "unknown type": TensorProto(data_type=99, dims=[0]),
    "no type": TensorProto(dims=[0]),
    "raw strings": TensorProto(data_type=TensorProto.STRING, dims=[0], raw_data=b""),
    "strings that are no text": TensorProto(data_type=TensorProto.STRING, dims=[1], string_data=[b"\xff"]),
    "segment": TensorProto(data_type=1, dims=[0], segment=TensorProto.Segment(begin=0, end=1)),
}


@pytest.mark.parametrize("case", BAD_TENSORS)
def test_bad_tensors_are_refused_by_name(case: str) -> None:
    with pytest.raises(ModelImportError, match="the tensor 'w'"):
        read_tensor(BAD_TENSORS[case], WeightFolder(None), "the tensor 'w'")


@pytest.mark.parametrize(
    ("dims", "indices"),
    [
        ([2**20, 2**20], [0]),
        ([3], [3]),
        ([3], [-1]),
        ([2, 2], [[0, 2]]),
        ([-3], [0]),
        ([2], [[[0]]]),
        ([0, 2**62], [0]),
    ],
    ids=str,
)
def test_bad_sparse_tensors_are_refused(dims: list[int], indices: list) -> None:
    sparse = onnx.SparseTensorProto(dims=dims)
    sparse.values.CopyFrom(numpy_helper.from_array(np.ones(1, np.float32), "w"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array(indices, np.int64)))
    with pytest.raises(ModelImportError, match="the tensor 'w'"):
        read_sparse_tensor(sparse, WeightFolder(None), "the tensor 'w'")


WEIGHTS = np.arange(12, dtype=np.float32).reshape(3, 4)


def external_model(location: str, dtype: int = TensorProto.FLOAT, **entries: Any) -> onnx.ModelProto:
    """y = x + w, where w: (3, 4) lies in the file `location`."""
    tensor = TensorProto(name="w", data_type=dtype, dims=WEIGHTS.shape, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", 1, [3, 4])],
        [helper.make_tensor_value_info("y", 1, [3, 4])],
        [tensor],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder, with a secret beside it."""
    inside = tmp_path / "inside"
    (inside / "deep").mkdir(parents=True)
    (tmp_path / "secret.bin").write_bytes(WEIGHTS.tobytes())
    return inside


def load(folder: Path, proto: onnx.ModelProto) -> np.ndarray:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return read_onnx(path).constants["w"]


@pytest.mark.parametrize("name", ["weights.bin", "deep/weights.bin", "./weights.bin"])
@pytest.mark.parametrize("entries", [{}, {"length": 48}, {"offset": 0, "length": 48}], ids=str)
def test_weight_files_are_read(folder: Path, name: str, entries: dict[str, int]) -> None:
    (folder / name).write_bytes(WEIGHTS.tobytes())
    np.testing.assert_array_equal(load(folder, external_model(name, **entries)), WEIGHTS)


def test_an_offset_is_honoured(folder: Path) -> None:
    (folder / "weights.bin").write_bytes(b"x" * 64 + WEIGHTS.tobytes() + b"y" * 8)
    np.testing.assert_array_equal(load(folder, external_model("weights.bin", offset=64, length=48)), WEIGHTS)


def test_files_written_by_onnx_itself_are_read(folder: Path) -> None:
    proto = external_model("unused")
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(WEIGHTS, "w"))
    path = folder / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert b"external" not in path.read_bytes()
    assert path.stat().st_size < (folder / "weights.bin").stat().st_size + 200
    np.testing.assert_array_equal(read_onnx(path).constants["w"], WEIGHTS)


def test_a_link_inside_the_folder_is_followed(folder: Path) -> None:
    (folder / "deep/real.bin").write_bytes(WEIGHTS.tobytes())
    (folder / "weights.bin").symlink_to("deep/real.bin")
    np.testing.assert_array_equal(load(folder, external_model("weights.bin")), WEIGHTS)


def refused(folder: Path, proto: onnx.ModelProto, words: str) -> None:
    with pytest.raises(ModelImportError, match=f"(?s)constant 'w'.*{words}"):
        load(folder, proto)


@pytest.mark.parametrize(
    "location",
    [
        "../secret.bin",
        "deep/../../secret.bin",
        "..\\secret.bin",
        "C:\\secret.bin",
        "C:secret.bin",
        "\\secret.bin",
    ],
)
def test_names_that_lead_out_of_the_folder_are_refused(folder: Path, location: str) -> None:
    refused(folder, external_model(location), "inside it")


def test_an_absolute_name_is_refused(folder: Path) -> None:
    refused(folder, external_model(str(folder.parent / "secret.bin")), "inside it")
    (folder / "weights.bin").write_bytes(WEIGHTS.tobytes())
    refused(folder, external_model(str(folder / "weights.bin")), "inside it")


def test_a_link_out_of_the_folder_is_refused(folder: Path) -> None:
    (folder / "weights.bin").symlink_to("../secret.bin")
    refused(folder, external_model("weights.bin"), "link that leads out")


def test_a_folder_that_links_out_is_refused(folder: Path) -> None:
    (folder / "up").symlink_to("..", target_is_directory=True)
    refused(folder, external_model("up/secret.bin"), "link that leads out")


def test_a_link_in_a_circle_is_refused(folder: Path) -> None:
    (folder / "weights.bin").symlink_to("weights.bin")
    refused(folder, external_model("weights.bin"), "weights.bin")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_a_pipe_is_refused_without_waiting(folder: Path) -> None:
    os.mkfifo(folder / "weights.bin")
    refused(folder, external_model("weights.bin"), "not an ordinary file")


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"offset": 8}, "cut short"),
        ({"offset": 10**17}, "cut short"),
        ({"length": 40}, "40 bytes"),
        ({"length": 2**60}, "bytes"),
        ({"offset": -48}, "offset"),
        ({"offset": "1_0"}, "offset"),
        ({"offset": "9" * 5000}, "offset"),
        ({"length": "many"}, "length"),
    ],
    ids=[
        "past the end",
        "far past the end",
        "too short",
        "huge",
        "negative",
        "underscore",
        "endless",
        "word",
    ],
)
def test_offsets_and_lengths_are_checked(folder: Path, entries: dict[str, Any], words: str) -> None:
    (folder / "weights.bin").write_bytes(WEIGHTS.tobytes())
    refused(folder, external_model("weights.bin", **entries), words)


def test_a_huge_tensor_in_a_small_file_costs_no_memory(folder: Path) -> None:
    (folder / "weights.bin").write_bytes(WEIGHTS.tobytes())
    proto = external_model("weights.bin")
    proto.graph.initializer[0].dims[:] = [2**30, 2**20]
    refused(folder, proto, "cut short")


@pytest.mark.parametrize("location", ["absent.bin", "deep", "", "a\0b", "x" * 5000])
def test_names_of_no_file_are_refused(folder: Path, location: str) -> None:
    refused(folder, external_model(location), "weight file")


def test_strings_in_a_weight_file_are_refused(folder: Path) -> None:
    refused(folder, external_model("weights.bin", dtype=TensorProto.STRING), "strings")


def test_bytes_without_a_folder_say_so(folder: Path) -> None:
    data = external_model("weights.bin").SerializeToString()
    with pytest.raises(ModelImportError, match="'w'.*load the model by its path"):
        read_onnx(data)
    (folder / "weights.bin").write_bytes(WEIGHTS.tobytes())
    np.testing.assert_array_equal(read_onnx(data, folder).constants["w"], WEIGHTS)


def test_weights_of_a_constant_node_are_held_to_the_same_rules(folder: Path) -> None:
    proto = external_model("../secret.bin")
    tensor = proto.graph.initializer.pop()
    proto.graph.node.insert(0, helper.make_node("Constant", [], ["w"], name="k", value=tensor))
    with pytest.raises(ModelImportError, match="'k'.*inside it"):
        load(folder, proto)
