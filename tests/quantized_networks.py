"""Networks with 8-bit weights, in the three forms in which onnxruntime's quantiser writes them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx

Form = Literal["qoperator", "qdq", "dynamic"]
"""`QLinearConv` and the like; layers between `DequantizeLinear` and `QuantizeLinear`; `MatMulInteger` behind
`DynamicQuantizeLinear`."""


def quantised(source: str | bytes, calls: Sequence[Mapping[str, np.ndarray]], form: Form) -> bytes:
    """The network in int8; `calls` are inputs from which the ranges of its tensors are taken."""
    model = onnx.load(source) if isinstance(source, str) else onnx.load_from_string(source)
    return _quantised(model.SerializeToString(), tuple(_Call(call) for call in calls), form)


class _Call:
    """Inputs, compared by their elements."""

    def __init__(self, inputs: Mapping[str, np.ndarray]) -> None:
        self.inputs = dict(inputs)
        self._key = tuple((name, array.tobytes()) for name, array in inputs.items())

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Call) and self._key == other._key


@cache
def _quantised(source: bytes, calls: tuple[_Call, ...], form: Form) -> bytes:
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self._calls = iter(calls)

        def get_next(self) -> dict[str, Any] | None:
            found = next(self._calls, None)
            return None if found is None else found.inputs

    with tempfile.TemporaryDirectory() as folder:
        plain, prepared, made = (Path(folder) / f"{name}.onnx" for name in ("plain", "prepared", "made"))
        plain.write_bytes(source)
        quantization.shape_inference.quant_pre_process(plain, prepared, skip_symbolic_shape=True)
        if form == "dynamic":
            quantization.quantize_dynamic(prepared, made)
        else:
            named = quantization.QuantFormat.QDQ if form == "qdq" else quantization.QuantFormat.QOperator
            quantization.quantize_static(prepared, made, Reader(), quant_format=named)
        return made.read_bytes()
