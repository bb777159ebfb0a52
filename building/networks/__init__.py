"""Networks that say which kernels are compiled ahead: their structure, without their weights.

`structures.tar.xz` holds ONNX files whose large tensors have types and shapes and no elements. They are what
exporters make of common architectures with random weights (`tests/field/sources/exported.py`), and the
benchmarks' own networks, written by

    python -m building.networks FILE.onnx ...

which replaces the archive. Others are written by `building.networks.written`, and those of this package's
assets are read from there.
"""

from __future__ import annotations

import io
import lzma
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from building.networks.written import written

ARCHIVE = Path(__file__).with_name("structures.tar.xz")

_ASSETS = Path(__file__).parents[2] / "assets"

_SMALL = 64
"""Tensors with as many elements keep them: shapes, axes, scalars, scales."""

_SMALL_INTEGERS = 1024
"""The same for integers of 32 and 64 bits, as indices are."""


def networks() -> Iterator[tuple[str, bytes]]:
    """The networks, by name, as ONNX files whose missing elements are ones."""
    for path in sorted(_ASSETS.glob("*/*.onnx")):
        yield path.stem, path.read_bytes()
    yield from written()
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            yield member.name, _filled(archive, member)


def network(name: str) -> bytes:
    """One network of the archive."""
    with tarfile.open(ARCHIVE) as archive:
        return _filled(archive, archive.getmember(name))


def _filled(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    assert file is not None
    model = onnx.load_from_string(file.read())
    for tensor in _tensors(model.graph):
        if not tensor.HasField("raw_data") and _is_large(tensor):
            dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
            tensor.raw_data = np.ones(int(np.prod(tensor.dims)), dtype).tobytes()
    return bytes(model.SerializeToString())


def structure_of(model: onnx.ModelProto) -> bytes:
    """A network without the elements of its large tensors, and without what only people read."""
    for tensor in _tensors(model.graph):
        if _is_large(tensor):
            kept = onnx.TensorProto(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
            tensor.CopyFrom(kept)
    del model.metadata_props[:], model.graph.value_info[:], model.graph.metadata_props[:]
    model.doc_string = model.graph.doc_string = ""
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    return bytes(model.SerializeToString())


def write(files: list[Path]) -> None:
    """Replace the archive by the structures of these networks."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for path in sorted(files, key=lambda path: path.stem):
            body = structure_of(onnx.load(path))
            info = tarfile.TarInfo(path.stem)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    ARCHIVE.write_bytes(lzma.compress(data.getvalue(), preset=9 | lzma.PRESET_EXTREME))


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            if attribute.HasField("g"):
                yield from _tensors(attribute.g)


def _is_large(tensor: onnx.TensorProto) -> bool:
    if tensor.data_type == onnx.TensorProto.STRING:
        return False
    is_index = tensor.data_type in (onnx.TensorProto.INT32, onnx.TensorProto.INT64)
    return int(np.prod(tensor.dims)) > (_SMALL_INTEGERS if is_index else _SMALL)
