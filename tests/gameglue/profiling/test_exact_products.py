"""Products of integers by onnxruntime, which a comparison takes for exact."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from gameglue.profiling.exact_products import with_unsigned_weights
from tests.peer import open_session


@pytest.mark.parametrize("zero", ["", ", wz"])
@pytest.mark.parametrize("optimised", [False, True])
def test_sums_do_not_saturate(zero: str, optimised: bool) -> None:
    """Every product is 255 * -127: two of them exceed int16."""
    weights = ", ".join(["-127"] * 64)
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        g (uint8[1, 32] x) => (int32[1, 2] y, float[32, 2] z) <
            int8[32, 2] w = {{{weights}}}, uint8 xz = {{0}}, int8 wz = {{0}}, float s = {{0.5}}
        > {{
            y = MatMulInteger (x, w, xz{zero})
            z = DequantizeLinear (w, s{zero})
        }}
    """)
    assert with_unsigned_weights(model)
    assert not with_unsigned_weights(model)
    onnx.checker.check_model(model, full_check=True)
    session = open_session(model.SerializeToString(), optimised=optimised)
    y, z = session.run(None, {"x": np.full((1, 32), 255, np.uint8)})
    assert y.tolist() == [[32 * 255 * -127] * 2]
    assert np.unique(z).tolist() == [-63.5]


def test_weights_that_others_read_stay_as_they_are() -> None:
    text = """
        <ir_version: 8, opset_import: ["" : 17]>
        g (uint8[1, 2] x, int64[1] i) => (int32[1, 2] y, int8[1, 2] row) <int8[2, 2] w = {1, 2, 3, 4}> {
            y = MatMulInteger (x, w)
            row = Gather (w, i)
        }
    """
    assert not with_unsigned_weights(onnx.parser.parse_model(text))
