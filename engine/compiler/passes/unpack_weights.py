"""Unpacks weights of few bits to the float32 matrices with which products are fastest.

Constant folding does that for what is small. Here any size is unpacked, for backends whose memory is the
host's: a product that unpacks its weights again in every run takes several times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from engine.compiler.builders import ShapeBuilder
from engine.compiler.passes.fold_constants import fold_layers
from engine.compiler.plan import storable
from engine.graph.model import CONTRIB, Layer, Model

_WEIGHTS_OF = {"MatMul": 1, "Gemm": 1, "Conv": 1, "ConvTranspose": 1}
"""The input that holds weights."""

_UNPACKING = frozenset(("Cast", "DequantizeLinear", "Reshape", "Transpose", "Identity"))


class _Unbounded(ShapeBuilder):
    fold_limit = 1 << 62


def unpack_weights(model: Model) -> Model:
    """Evaluate layers that compute weights from constants, and replace products of packed weights."""
    constants = dict(model.constants)
    layers: list[Layer] = []
    for layer in model.layers:
        layers += _plain_product(_plain_experts(layer, constants), constants)
    weights = _ancestors(layers)
    kept = fold_layers(layers, constants, lambda layer: bool(weights.intersection(layer.outputs)), _Unbounded)
    if len(kept) == len(model.layers) and all(a is b for a, b in zip(kept, model.layers, strict=True)):
        return model
    used = {name for layer in kept for name in layer.dependencies} | {o.name for o in model.outputs}
    makers = dict(model.constant_factories)
    for layer in layers:
        if layer not in kept and (make := _maker(layer, model.constants)) is not None:
            makers[layer.outputs[0]] = make
    found = {name: array for name, array in constants.items() if name in used}
    return model.replace(layers=tuple(kept), constants=found, constant_factories=makers)


def _maker(layer: Layer, constants: Mapping[str, np.ndarray]) -> Callable[[], np.ndarray] | None:
    """The function by which a stored plan recomputes weights from the model's constants, or None."""
    if layer.op_type != "DequantizeLinear" or not set(layer.attributes) <= {"axis"}:
        return None
    known = [constants[name] for name in layer.inputs if name in constants]
    if len(known) < len(layer.inputs):
        return None
    elements, scale, zero = (*known, _NONE)[:3]
    return partial(dequantized, elements, scale, zero, int(layer.attributes.get("axis", 1)), layer.version)


_NONE = np.empty(0, np.uint8)


@storable
def dequantized(
    elements: np.ndarray, scale: np.ndarray, zero: np.ndarray, axis: int, version: int
) -> np.ndarray:
    """Dequantise constants as DequantizeLinear does; `zero` is empty if there is none."""
    constants = {"x": elements, "scale": scale, **({"zero": zero} if zero.size else {})}
    layer = Layer("DequantizeLinear", "", tuple(constants), ("y",), {"axis": axis}, "", version)
    fold_layers([layer], constants, builder=_Unbounded)
    return constants["y"]


def _ancestors(layers: list[Layer]) -> set[str]:
    """The names of weights and of the constants that they are unpacked from."""
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
    if layer.op_type != "MatMulNBits" or layer.domain != CONTRIB:
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


_EXPERTS_ATTRIBUTES = frozenset(
    "activation_alpha activation_beta activation_type k swiglu_fusion swiglu_limit"
    " swiglu_limit_after_activation".split()
)


def _plain_experts(layer: Layer, constants: dict[str, np.ndarray]) -> Layer:
    """A QMoE of known weights and plain routing as MoE; any other layer as it is."""
    if layer.op_type != "QMoE" or layer.domain != CONTRIB:
        return layer
    inputs = (*layer.inputs, *[""] * 22)[:22]
    given = layer.attributes
    if any(inputs[14:]) or given.get("quant_type", "int") != "int" or given.get("weights_prepacked", -1) == 1:
        return layer
    plain: list[str] = [*inputs[:2]]
    for position in range(3):
        words, scales, bias = inputs[2 + 3 * position : 5 + 3 * position]
        zeros = inputs[11 + position]
        if not words:
            plain += ["", ""]
            continue
        known = [constants.get(name) for name in (words, scales, zeros)]
        bits = int(given.get(f"fc{position + 1}_expert_weight_bits", 0) or given.get("expert_weight_bits", 4))
        if known[0] is None or known[1] is None or (zeros and known[2] is None):
            return layer
        weights = _unpacked_experts(known[0], known[1], known[2], bits, int(given.get("block_size", 0)))
        if weights is None:
            return layer
        name = f"{layer.outputs[0]}/weights {position + 1}"
        constants[name] = weights
        plain += [name, bias]
    while not plain[-1]:
        plain.pop()
    # QMoE divides by the sum over the chosen experts in any case.
    attributes = {n: v for n, v in given.items() if n in _EXPERTS_ATTRIBUTES} | {
        "normalize_routing_weights": 1
    }
    return layer.replace(op_type="MoE", inputs=tuple(plain), attributes=attributes)


def _unpacked_experts(
    packed: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, bits: int, block_size: int
) -> np.ndarray | None:
    """The float32 weights (experts, rows, columns) of a QMoE layer; None if its attributes do not fit."""
    if packed.ndim != 3 or bits not in (2, 4, 8) or scales.dtype != np.float32:
        return None
    experts, rows, width = packed.shape
    columns = width * 8 // bits
    block = block_size or columns
    blocks = -(-columns // block)
    if scales.size != experts * rows * blocks:
        return None
    middle = np.full((experts, rows, blocks), 1 << (bits - 1), np.float32)
    if zeros is not None:
        lines = experts * rows if block_size else experts
        count = blocks if block_size else rows
        if zeros.size != lines * -(-count * bits // 8):
            return None
        table = _numbers(zeros.reshape(lines, -1), bits)[:, :count]
        middle = table.reshape(experts, rows, blocks).astype(np.float32)
    numbers = _numbers(packed.reshape(experts * rows, width), bits).reshape(experts, rows, columns)
    values = numbers.astype(np.float32)
    of_block = np.arange(columns) // block
    values -= middle[:, :, of_block]
    values *= scales.reshape(experts, rows, blocks)[:, :, of_block]
    return values


def unpacked(
    packed: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, attributes: Any
) -> np.ndarray | None:
    """The (K, N) float32 matrix of a MatMulNBits; None if its attributes do not fit."""
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
