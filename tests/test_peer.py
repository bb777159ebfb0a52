"""The sessions of onnxruntime from which other tests take what they expect."""

from __future__ import annotations

import numpy as np
import onnx

from tests.peer import open_session


def test_sums_of_integers_are_exact() -> None:
    """Every product is 255 * -127: two of them exceed int16."""
    weights = ", ".join(["-127"] * 64)
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        g (uint8[1, 32] x) => (int32[1, 2] y) <int8[32, 2] w = {{{weights}}}> {{ y = MatMulInteger (x, w) }}
    """)
    (y,) = open_session(model.SerializeToString()).run(None, {"x": np.full((1, 32), 255, np.uint8)})
    assert y.tolist() == [[32 * 255 * -127] * 2]
