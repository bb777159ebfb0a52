"""Label encoding (domain ai.onnx.ml): LabelEncoder, CategoryMapper, OneHotEncoder, ZipMap and others.

Numbers are looked up in kernels, text on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.base.dtypes import FLOAT32, INT64, TEXT
from engine.graph.model import ML
from engine.kernels.expr import FLOATS, Expr, arg, cast, clamp, eq, lit, select, unary
from engine.kernels.value import Entry, ListValue, MapsValue, Value
from engine.operators.builder import Builder
from engine.operators.casting import convert
from engine.operators.registry import operator
from engine.operators.sorting import first_beyond

UNUSED = "_Unused"
"""What an unknown key stands for where labels are text."""


def texts_of(k: Builder, x: Value) -> np.ndarray:
    """The strings (or numbers) of a tensor that the host has, in row-major order."""
    found = k.elements(x) if x.size else np.empty(0, x.dtype)
    assert found is not None
    return found.reshape(-1)


def looked_up(k: Builder, x: Value, keys: np.ndarray, values: np.ndarray, default: Any) -> Entry:
    """For each element the value of its key, or the default; NaN is a key like others."""
    if keys.size != values.size:
        k.error(f"has {keys.size} keys for {values.size} values")
    if (x.dtype == TEXT) != (keys.dtype == TEXT):
        k.error(f"its keys are {keys.dtype.name}, its input is {x.dtype.name}")
    if x.dtype == TEXT:
        return looked_up_on_host(k, x, keys, values, default)
    keys = keys.astype(x.dtype)
    if values.dtype == TEXT:
        places = looked_up_in_kernel(k, x, keys, np.arange(values.size), values.size)
        return k.text(places, np.array([*values, default], TEXT))
    return looked_up_in_kernel(k, x, keys, values, default)


def looked_up_on_host(k: Builder, x: Value, keys: np.ndarray, values: np.ndarray, default: Any) -> Value:
    """Where keys are text."""
    found = dict(zip(keys.tolist(), values.tolist(), strict=True))
    made = np.empty(x.size, values.dtype)
    for i, key in enumerate(texts_of(k, x).tolist()):
        made[i] = found.get(key, default)
    return k.constant(made.reshape(x.shape))


def looked_up_in_kernel(k: Builder, x: Value, keys: np.ndarray, values: np.ndarray, default: Any) -> Value:
    """Look up by binary search in sorted keys; the last of equal keys wins."""
    table = dict(zip(keys.tolist(), range(keys.size), strict=True))
    nan = next((i for key, i in reversed(table.items()) if key != key), None)
    ordered = sorted((key, i) for key, i in table.items() if key == key)
    numbers = np.array([values[i] for _, i in ordered] + ([] if nan is None else [values[nan]]), values.dtype)
    known, results = k.constant(np.array([key for key, _ in ordered], x.dtype)), k.constant(numbers)
    count = len(ordered)

    def formula(e: Expr) -> Expr:
        other = arg(default, results.arithmetic)
        found = other
        if count:
            first = first_beyond(
                lit(0), arg(count), count, lambda i: known[clamp(i, lit(0), arg(count - 1))] < e
            )
            at = clamp(first, lit(0), arg(count - 1))
            found = select(eq(known[at], e), results[at], other)
        if nan is not None and e.dtype in FLOATS:
            found = select(unary("isnan", e), results[arg(count)], found)
        return found

    return k.elementwise(formula, x, dtype=values.dtype)


def keys_or_values(k: Builder, role: str, given: dict[str, Any]) -> np.ndarray:
    """Keys or values from whichever attribute holds them."""
    types = {"strings": TEXT, "int64s": INT64, "floats": FLOAT32, "tensor": None}
    found = [np.array(v, types[name]).reshape(-1) for name, v in given.items() if v is not None]
    if len(found) != 1:
        k.error(f"has {len(found)} attributes for its {role}; one of {', '.join(given)} is needed")
    return found[0]


@operator("LabelEncoder", domain=ML, since=2)
def label_encoder(
    k: Builder, x: Value, *, keys_strings: Sequence[str] | None = None,
    keys_int64s: Sequence[int] | None = None, keys_floats: Sequence[float] | None = None,
    keys_tensor: np.ndarray | None = None, values_strings: Sequence[str] | None = None,
    values_int64s: Sequence[int] | None = None, values_floats: Sequence[float] | None = None,
    values_tensor: np.ndarray | None = None, default_string: str = UNUSED, default_int64: int = -1,
    default_float: float = -0.0, default_tensor: np.ndarray | None = None,
) -> Entry:  # fmt: skip
    """The value of each element's key, or a default for unknown keys."""
    keys = {"strings": keys_strings, "int64s": keys_int64s, "floats": keys_floats, "tensor": keys_tensor}
    values = {
        "strings": values_strings, "int64s": values_int64s, "floats": values_floats, "tensor": values_tensor,
    }  # fmt: skip
    results = keys_or_values(k, "values", values)
    default: Any = default_string if results.dtype == TEXT else default_int64
    if results.dtype.kind == "f":
        default = default_float
    if default_tensor is not None:
        default = default_tensor.reshape(-1)[0]
    return looked_up(k, x, keys_or_values(k, "keys", keys), results, default)


@operator("LabelEncoder", domain=ML, since=1, until=1)
def label_encoder_1(
    k: Builder, x: Value, *, classes_strings: Sequence[str] = (), default_int64: int = -1,
    default_string: str = UNUSED,
) -> Entry:  # fmt: skip
    """The position of each string among the classes, or the class at each position."""
    positions, classes = np.arange(len(classes_strings)), np.array(classes_strings, TEXT)
    if x.dtype == TEXT:
        return looked_up(k, x, classes, positions, default_int64)
    return looked_up(k, x, positions, classes, default_string)


@operator("CategoryMapper", domain=ML)
def category_mapper(
    k: Builder, x: Value, *, cats_int64s: Sequence[int] = (), cats_strings: Sequence[str] = (),
    default_int64: int = -1, default_string: str = UNUSED,
) -> Entry:  # fmt: skip
    """The number of each string, or the string of each number."""
    numbers, names = np.array(cats_int64s, INT64), np.array(cats_strings, TEXT)
    if x.dtype == TEXT:
        return looked_up(k, x, names, numbers, default_int64)
    return looked_up(k, x, numbers, names, default_string)


@operator("OneHotEncoder", domain=ML)
def one_hot_encoder(
    k: Builder, x: Value, *, cats_int64s: Sequence[int] = (), cats_strings: Sequence[str] = (), zeros: int = 1
) -> Value:
    """One-hot encode each element's category along a new last axis; float32.

    An unknown category is all zeros. With `zeros=0` it is an error, which a kernel cannot raise: only text is
    checked.
    """
    if x.dtype == TEXT:
        names = np.array(cats_strings, TEXT)
        x = looked_up_on_host(k, x, names, np.arange(names.size), -1)
        if not zeros and x.size and int(np.min(texts_of(k, x))) < 0:
            k.error(f"meets a string that is none of its categories {list(cats_strings)}, and zeros is 0")
        cats_int64s = range(names.size)
    categories = k.constant(np.array(cats_int64s, INT64))
    flat = k.alias(x, (x.size,))

    def formula(i: Expr, c: Expr) -> Expr:
        return cast(eq(cast(flat[i], "int64"), categories[c]), "float32")

    return k.alias(k.compute((x.size, categories.size), FLOAT32, formula), (*x.shape, categories.size))


@operator("ZipMap", domain=ML)
def zip_map(
    k: Builder, x: Value, *, classlabels_int64s: Sequence[int] = (), classlabels_strings: Sequence[str] = ()
) -> MapsValue:
    """For each row of scores a map from each class to its score; [C] counts as a row."""
    keys: tuple[int | str, ...] = (*classlabels_strings, *classlabels_int64s)
    if bool(classlabels_int64s) == bool(classlabels_strings):
        k.error("needs either classlabels_int64s or classlabels_strings")
    if x.rank not in (1, 2) or x.shape[-1] != len(keys):
        k.error(f"has {len(keys)} classes for scores of shape {list(x.shape)}")
    rows = k.alias(x, (x.size // len(keys), len(keys)))
    return MapsValue((rows,), rows.dtype, keys)


# Maps come as a list of two tensors, the keys and their values. The host knows the keys.


@operator("DictVectorizer", domain=ML)
def dict_vectorizer(
    k: Builder, x: ListValue, *, int64_vocabulary: Sequence[int] = (), string_vocabulary: Sequence[str] = ()
) -> Value:
    """One row (1, words) with the value of each vocabulary word; 0 or "" if missing."""
    if bool(int64_vocabulary) == bool(string_vocabulary):
        k.error("needs either int64_vocabulary or string_vocabulary")
    keys, values = x.items
    places = {key: place for place, key in enumerate(texts_of(k, keys).tolist())}
    found = np.array([places.get(word, -1) for word in (*string_vocabulary, *int64_vocabulary)], np.int64)
    return chosen_values(k, values, found)


def chosen_values(k: Builder, values: Value, places: np.ndarray, filler: str = "") -> Value:
    """One row of values by position; 0, or the string `filler`, at -1."""
    if values.dtype == TEXT:
        known = np.array([*texts_of(k, values), filler], TEXT)
        return k.constant(known[places][None])
    if not values.size:
        return k.constant(np.zeros((1, places.size), values.dtype))
    table = k.constant(places)

    def formula(_: Expr, c: Expr) -> Expr:
        place = cast(table[c], "index")
        return values.load_where(place >= lit(0), (place,))

    return k.compute((1, places.size), values.dtype, formula)


MAP_TYPES = {"TO_FLOAT": FLOAT32, "TO_STRING": TEXT, "TO_INT64": INT64}
"""What CastMap converts to."""


@operator("CastMap", domain=ML, host=("x",))
def cast_map(
    k: Builder, x: ListValue, *, cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1
) -> Value:
    """One row of a map's values in key order; SPARSE: at the index given by the key."""
    if cast_to not in MAP_TYPES or map_form not in ("DENSE", "SPARSE"):
        known = ", ".join((*MAP_TYPES, "DENSE", "SPARSE"))
        k.error(f"has cast_to {cast_to!r} and map_form {map_form!r}; known: {known}")
    keys, values = x.items
    places = {key: place for place, key in enumerate(texts_of(k, keys).tolist())}
    wanted = sorted(places) if map_form == "DENSE" else range(max_map)
    found = np.array([places.get(key, -1) for key in wanted], np.int64)
    row = chosen_values(k, values, found, "" if cast_to == "TO_STRING" else "0")
    return convert(k, row, MAP_TYPES[cast_to])
