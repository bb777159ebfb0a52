"""Model files with something changed: bytes at random, and fields of the protobuf, whatever they mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import EncodeError, Message

from engine import ModelLoader
from engine.base.dtypes import STORAGE_TYPES
from engine.graph.model import UNTYPED, Input
from tests.odd_layers import Start, run_model
from tests.print_only import printing_only

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (ROOT / "assets", ROOT.parent / "shared" / "models")

LARGEST_INPUT = 1 << 21
"""Elements of the largest input that is given; those of a size beyond are given too small ones."""

Mutated = tuple["bytes | Path", int, bool]
"""A model, the seed of what is changed in it, and whether its kernels are compiled."""


def mutated_files(
    count: int, layers: Sequence[Start], seed: int = 0, compiled: float = 0.1
) -> Iterator[tuple[str, Mutated]]:
    """So many mutations, the same for the same seed: half of the project's model files, half of layers.

    The kernels of the share `compiled` are compiled and run.
    """
    files = [path for folder in FOLDERS for path in sorted(folder.rglob("*.onnx"))]
    rng = np.random.default_rng(seed)
    for number in range(count):
        source: Path | bytes
        if number % 2:
            start = layers[int(rng.integers(len(layers)))]
            name, source = start.title, start.made().data
        else:
            source = files[int(rng.integers(len(files)))]
            name = source.stem
        own = int(rng.integers(2**62))
        yield f"{name} mutated by {own}", (source, own, bool(rng.random() < compiled))


def run_mutated(case: Mutated) -> str:
    """Change the file, load it and run it once."""
    source, seed, compiled = case
    rng = np.random.default_rng(seed)
    data = mutated(source, rng)
    model = ModelLoader.load(data)
    feeds = {item.name: some_feed(item, rng) for item in model.inputs}
    with nullcontext() if compiled else printing_only():
        return run_model(model, feeds)


def mutated(source: bytes | Path, rng: np.random.Generator) -> bytes:
    """A model's file with a few changes."""
    if rng.random() < 0.3:
        return with_other_bytes(contents(source), rng)
    proto = onnx.ModelProto.FromString(contents(source))
    for _ in range(int(rng.integers(1, 4))):
        change_a_field(proto, rng)
    try:
        return bytes(proto.SerializeToString())
    except (EncodeError, ValueError):
        return b""


@lru_cache(maxsize=4)
def contents(source: bytes | Path) -> bytes:
    """A model's bytes."""
    return source if isinstance(source, bytes) else source.read_bytes()


def with_other_bytes(data: bytes, rng: np.random.Generator) -> bytes:
    """Bytes flipped, taken away, put in or repeated, in up to six places."""
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 7))):
        where, length = int(rng.integers(max(1, len(changed)))), int(rng.integers(1, 40))
        match int(rng.integers(5)):
            case 0 | 1 if changed:
                changed[where] ^= int(rng.integers(1, 256))
            case 2:
                del changed[where : where + length]
            case 3:
                changed[where:where] = rng.bytes(length)
            case _:
                changed[where:where] = changed[where : where + length]
    return bytes(changed)


# Fields

ODD_NUMBERS = (0, 1, -1, 2, 3, 4, 7, 8, 16, 100, 1 << 20, 2**31 - 1, 2**31, 2**40, 2**62, -(2**63))
ODD_FLOATS = (0.0, 1.0, -1.0, 0.5, 1e30, -1e30, float("nan"), float("inf"), 1e-30)
ODD_TEXTS = ("", "x", "ai.onnx", "com.microsoft", "../out", "weights.bin", "\0", "linear", "é" * 50)


def fields_of(message: Message) -> list[tuple[Message, FieldDescriptor]]:
    """Every field that is set, of a message and those inside it."""
    found = []
    for field, value in message.ListFields():
        found.append((message, field))
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in value if field.is_repeated else [value]:
                found += fields_of(inner)
    return found


def change_a_field(proto: Message, rng: np.random.Generator) -> None:
    """Change one field, or an item of one, chosen among all that are set; or set one that is not."""
    fields = fields_of(proto)
    message, field = fields[rng.integers(len(fields))]
    if rng.random() < 0.1:
        field = list(message.DESCRIPTOR.fields)[rng.integers(len(message.DESCRIPTOR.fields))]
    if field.is_repeated:
        change_items(getattr(message, field.name), field, rng, [f for f in fields if f[1] == field])
    elif rng.random() < 0.15:
        message.ClearField(field.name)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        others = [m for m, f in fields if f == field]
        if others:
            other = others[rng.integers(len(others))]
            # A message that lies inside the one it replaces is gone while it is copied.
            copy = getattr(other, field.name).SerializeToString()
            getattr(message, field.name).ParseFromString(copy)
    else:
        others = [getattr(m, f.name) for m, f in fields if f == field]
        set_scalar(message, field, odd_value(field, getattr(message, field.name), others, rng))


def change_items(items: Any, field: FieldDescriptor, rng: np.random.Generator, others: list[Any]) -> None:
    """Change a repeated field: an item more, less, elsewhere, twice or other."""
    count = len(items)
    where = int(rng.integers(max(1, count)))
    is_message = field.type == FieldDescriptor.TYPE_MESSAGE
    match int(rng.integers(5)):
        case 0 if count:
            del items[where]
        case 1 if count:
            items.append(items[where]) if not is_message else items.add().CopyFrom(items[where])
        case 2 if count > 1:
            other = int(rng.integers(count))
            copies = [type(x).FromString(x.SerializeToString()) if is_message else x for x in items]
            copies[where], copies[other] = copies[other], copies[where]
            del items[:]
            items.extend(copies)
        case 3 if count:
            del items[int(rng.integers(count)) :]
        case _ if not is_message:
            pool = [x for m, f in others for x in getattr(m, f.name)][:200]
            value = odd_value(field, items[where] if count else None, pool, rng)
            try:
                if count:
                    items[where] = value
                else:
                    items.append(value)
            except (TypeError, ValueError):
                pass  # protobuf refuses to write it
        case _:
            items.add()


def set_scalar(message: Message, field: FieldDescriptor, value: Any) -> None:
    """Set a field, unless protobuf refuses to write the value."""
    try:
        setattr(message, field.name, value)
    except (TypeError, ValueError):
        pass


def odd_value(field: FieldDescriptor, now: Any, others: list[Any], rng: np.random.Generator) -> Any:
    """Another value for a field: one of another place, a number nearby, or an odd one."""
    if others and rng.random() < 0.4:
        return others[rng.integers(len(others))]
    if field.cpp_type in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return ODD_FLOATS[rng.integers(len(ODD_FLOATS))]
    if field.type == FieldDescriptor.TYPE_STRING:
        return ODD_TEXTS[rng.integers(len(ODD_TEXTS))]
    if field.type == FieldDescriptor.TYPE_BYTES:
        return with_other_bytes(bytes(now or b""), rng)
    if field.type == FieldDescriptor.TYPE_BOOL:
        return not now
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM or field.name in ("data_type", "elem_type"):
        return int(rng.integers(0, 30))
    if rng.random() < 0.3:
        return int(now or 0) + int(rng.integers(-2, 3))
    return ODD_NUMBERS[rng.integers(len(ODD_NUMBERS))]


# What it is given


def some_feed(item: Input, rng: np.random.Generator) -> Any:
    """A small value for a model's input."""
    if item.kind == "optional" and rng.random() < 0.5:
        return None
    size = int(rng.integers(1, 5))
    dims = [n if isinstance(n, int) else size for n in item.shape] if item.shape is not None else [size, size]
    if np.prod([float(max(n, 1)) for n in dims]) > LARGEST_INPUT:
        dims = [1] * len(dims)
    dims = dims[:32]
    if item.dtype == object:
        array = np.full(dims, "word", object)
    elif item.dtype == UNTYPED or item.dtype.name not in STORAGE_TYPES:
        array = np.zeros(dims, np.float32)
    elif item.dtype.kind == "f":
        array = rng.standard_normal(dims).astype(item.dtype)
    else:
        array = rng.integers(0, 2, dims).astype(item.dtype)
    return [array] if item.kind == "sequence" else array
