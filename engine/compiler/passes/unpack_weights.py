"""Weights that a model keeps in fewer bits, as the float32 matrices that products are fastest with.

Constant folding does that for what is small. Here any size is unpacked, for backends whose memory is the
host's: a product that unpacks its weights anew in every run takes several times as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.compiler.builders import ShapeBuilder
from engine.compiler.passes.fold_constants import fold_layers
from engine.model import Layer, Model

_WEIGHTS_OF = {"MatMul": 1, "Gemm": 1, "Conv": 1, "ConvTranspose": 1}
"""The input that holds weights."""

_UNPACKING = frozenset(("Cast", "DequantizeLinear", "Reshape", "Transpose", "Identity"))


class _Unbounded(ShapeBuilder):
    fold_limit = 1 << 62


def unpack_weights(model: Model) -> Model:
    """Evaluate what makes weights of constants alone, and make products of packed weights plain ones."""
    constants = dict(model.constants)
    layers: list[Layer] = []
    for layer in model.layers:
        layers += _plain_product(layer, constants)
    weights = _ancestors(layers)
    kept = fold_layers(layers, constants, lambda layer: bool(weights.intersection(layer.outputs)), _Unbounded)
    if len(kept) == len(model.layers) and all(a is b for a, b in zip(kept, model.layers, strict=True)):
        return model
    used = {name for layer in kept for name in layer.dependencies} | {o.name for o in model.outputs}
    return model.replace(layers=tuple(kept), constants={n: a for n, a in constants.items() if n in used})


def _ancestors(layers: list[Layer]) -> set[str]:
    """The names of weights, and of what they are unpacked from."""
    found: set[str] = set()
    for layer in reversed(layers):
        position = _WEIGHTS_OF.get(layer.op_type) if not layer.domain else None
        if position is not None and len(layer.inputs) > position:
            found.add(layer.inputs[position])
        if layer.op_type in _UNPACKING and found.intersection(layer.outputs):
            found.update(layer.inputs[:1])
    return found


def _plain_product(layer: Layer, constants: dict[str, np.ndarray]) -> list[Layer]:
    """A MatMulNBits of known weights as MatMul and Add; any other layer as it is."""
    if layer.op_type != "MatMulNBits" or layer.domain != "com.microsoft":
        return [layer]
    x, packed, scales, zeros, order, bias = (*layer.inputs, "", "", "", "")[:6]
    known = [constants.get(name) for name in (packed, scales, zeros)]
    if known[0] is None or known[1] is None or (zeros and known[2] is None) or order:
        return [layer]
    weights = unpacked(known[0], known[1], known[2], layer.attributes)
    if weights is None:
        return [layer]
    name = f"{layer.outputs[0]}/weights"
    constants[name] = weights
    if not bias:
        return [layer.replace(op_type="MatMul", domain="", version=13, inputs=(x, name), attributes={})]
    product = f"{layer.outputs[0]}/product"
    return [
        layer.replace(
            name=f"{layer.name}/product", op_type="MatMul", domain="", version=13, inputs=(x, name),
            outputs=(product,), attributes={},
        ),
        layer.replace(op_type="Add", domain="", version=14, inputs=(product, bias), attributes={}),
    ]  # fmt: skip


def unpacked(
    packed: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, attributes: Any
) -> np.ndarray | None:
    """The (K, N) float32 matrix that MatMulNBits multiplies with; None where its numbers do not fit."""
    depth, columns, size = (int(attributes[name]) for name in ("K", "N", "block_size"))
    bits = int(attributes.get("bits", 4))
    if bits not in (2, 4, 8) or attributes.get("weight_prepacked") or scales.dtype != np.float32:
        return None
    blocks = -(-depth // size)
    if packed.size != columns * blocks * size * bits // 8 or scales.size != columns * blocks:
        return None
    numbers = _numbers(packed.reshape(columns, -1), bits).reshape(columns, blocks, size)
    middle = np.full((columns, blocks), 1 << (bits - 1), np.float32)
    if zeros is not None:
        row = -(-blocks * bits // 8) if zeros.dtype == np.uint8 else blocks
        if zeros.size != columns * row:
            return None
        table = zeros.reshape(columns, row)
        middle = (_numbers(table, bits) if zeros.dtype == np.uint8 else table)[:, :blocks].astype(np.float32)
    values = numbers.astype(np.float32)
    values -= middle[:, :, None]
    values *= scales.reshape(columns, blocks, 1)
    return np.ascontiguousarray(values.reshape(columns, -1)[:, :depth].T)


def _numbers(rows: np.ndarray, bits: int) -> np.ndarray:
    """The numbers of `bits` bits in rows of bytes, lowest bits first."""
    if bits == 8:
        return rows
    parts = [(rows >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, axis=-1).reshape(len(rows), -1)
