"""Extracts large weights from an ONNX file before the rest is parsed.

Parsed, they would be in memory twice more: in the message, and in the Python objects made of it. Only
lengths are read here, by protobuf's wire format (https://protobuf.dev/programming-guides/encoding). Anything
unusual is left to the parser, which says what is wrong with it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

SMALLEST = 4096
"""Bytes of a weight that is worth taking out."""

_MODEL_GRAPH = 7
_GRAPH_INITIALIZER = 5
_TENSOR_DATA_TYPE = 2
_TENSOR_FLOAT_DATA = 4
_TENSOR_RAW_DATA = 9
_FLOAT = 1

_FIXED = {1: 8, 5: 4}
_VARINT, _BYTES = 0, 2


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a message: the positions of its tag (`start`) and value (`body`)."""

    number: int
    wire: int
    start: int
    body: int
    end: int


def without_weights(data: bytes) -> tuple[bytes, dict[int, memoryview]]:
    """The file without its large weights, and these by the position of their initializer in the main graph.

    What is taken out is left empty in the file. The views are of `data`, which lives as long as they do.
    """
    found: dict[int, memoryview] = {}
    view = memoryview(data)
    pieces: list[bytes | memoryview] = []
    count = 0
    try:
        for field in _fields(view, 0, len(view)):
            if field.number == _MODEL_GRAPH and field.wire == _BYTES:
                graph, count = _graph(view, field, found, count)
                pieces += [_head(_MODEL_GRAPH, len(graph)), graph]
            else:
                pieces.append(view[field.start : field.end])
    except ValueError:
        return data, {}
    return (b"".join(pieces), found) if found else (data, {})


def _graph(view: memoryview, graph: _Field, found: dict[int, memoryview], count: int) -> tuple[bytes, int]:
    """A graph's bytes without its large weights, and how many initializers the file has up to its end."""
    pieces: list[bytes | memoryview] = []
    for field in _fields(view, graph.body, graph.end):
        taken = None
        if field.number == _GRAPH_INITIALIZER and field.wire == _BYTES:
            if field.end - field.body >= SMALLEST:
                taken = _elements(view, field)
            if taken is not None:
                found[count] = view[taken.body : taken.end]
                before, after = view[field.body : taken.start], view[taken.end : field.end]
                empty = _head(_TENSOR_RAW_DATA, 0)
                size = len(before) + len(empty) + len(after)
                pieces += [_head(_GRAPH_INITIALIZER, size), before, empty, after]
            count += 1
        if taken is None:
            pieces.append(view[field.start : field.end])
    return b"".join(pieces), count


def _elements(view: memoryview, tensor: _Field) -> _Field | None:
    """The position of a tensor's elements as bytes, if they are large and stored once.

    Floats in the typed field lie there as they do in the raw one, when the field is packed.
    """
    fields = list(_fields(view, tensor.body, tensor.end))
    holding = [f for f in fields if f.number in (_TENSOR_RAW_DATA, _TENSOR_FLOAT_DATA)]
    if len(holding) != 1 or holding[0].wire != _BYTES or holding[0].end - holding[0].body < SMALLEST:
        return None
    if holding[0].number == _TENSOR_FLOAT_DATA:
        types = [_varint(view, f.body, f.end)[0] for f in fields if f.number == _TENSOR_DATA_TYPE]
        if types != [_FLOAT] or (holding[0].end - holding[0].body) % 4 or sys.byteorder == "big":
            return None
    return holding[0]


def _fields(view: memoryview, start: int, end: int) -> Iterator[_Field]:
    """The fields of the message between two positions; raises `ValueError` if they do not fill it."""
    while start < end:
        tag, at = _varint(view, start, end)
        wire = tag & 7
        if wire == _VARINT:
            _, stop = _varint(view, at, end)
        elif wire == _BYTES:
            size, at = _varint(view, at, end)
            stop = at + size
        elif wire in _FIXED:
            stop = at + _FIXED[wire]
        else:
            raise ValueError(f"no field of the kind {wire} is expected")
        if stop > end or tag < 8:
            raise ValueError("a field reaches beyond its message, or has no number")
        yield _Field(tag >> 3, wire, start, at, stop)
        start = stop


def _varint(view: memoryview, at: int, end: int) -> tuple[int, int]:
    """A number in groups of seven bits, and where it ends."""
    value = 0
    for position in range(at, min(at + 10, end)):
        byte = view[position]
        value |= (byte & 127) << 7 * (position - at)
        if byte < 128:
            return value, position + 1
    raise ValueError("a number does not end")


def _head(number: int, size: int) -> bytes:
    """The tag and the length of a field of bytes."""
    coded = bytearray()
    for value in (number << 3 | _BYTES, size):
        while value > 127:
            coded.append(value & 127 | 128)
            value >>= 7
        coded.append(value)
    return bytes(coded)
