"""The engine has every operator that ONNX has, under every opset, with every attribute and input."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import defs

from engine.graph.importers.onnx_importer import OLDEST_OPSET
from engine.operators import OPERATORS

SPELLED_OTHERWISE = {
    ("RNN", "activations"): "ours is empty, which stands for as many Tanh as there are directions",
    ("GridSample", "mode"): "opset 20 calls bilinear linear; both words are taken under any opset",
}
"""Defaults that mean what ONNX's do in other words."""

NAMES = sorted({s.name for s in defs.get_all_schemas_with_history() if not s.domain and not s.deprecated})


def schemas(name: str) -> list[tuple[int, defs.OpSchema]]:
    """What the operator is under each opset that the engine reads."""
    found = []
    for version in range(OLDEST_OPSET, defs.onnx_opset_version() + 1):
        try:
            schema = defs.get_schema(name, version)
        except defs.SchemaError:
            continue
        if not schema.deprecated:
            found.append((version, schema))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_operator_takes_what_onnx_gives_it(name: str) -> None:
    for version, schema in schemas(name):
        operator = OPERATORS.find("", name, version)
        assert operator is not None, f"there is no {name} for opset {version}"
        assert set(schema.attributes) <= set(operator.attributes), f"opset {version}"
        if operator.variadic is None:
            assert len(schema.inputs) <= len(operator.inputs), f"opset {version}"
        optional = defs.OpSchema.FormalParameterOption.Optional
        for position, given in enumerate(schema.inputs[: len(operator.inputs)]):
            if given.option == optional:
                assert operator.inputs[position] in operator.optional, f"opset {version}: {given.name}"


@pytest.mark.parametrize("name", NAMES)
def test_defaults_are_onnx_s(name: str) -> None:
    for version, schema in schemas(name):
        operator = OPERATORS.find("", name, version)
        assert operator is not None
        for attribute in schema.attributes.values():
            if not attribute.default_value.type or (name, attribute.name) in SPELLED_OTHERWISE:
                continue
            expected = onnx.helper.get_attribute_value(attribute.default_value)
            expected = expected.decode() if isinstance(expected, bytes) else expected
            ours = operator.attributes[attribute.name]
            if isinstance(expected, float):
                assert ours == pytest.approx(expected, rel=1e-6), f"opset {version}: {attribute.name}"
            elif isinstance(expected, list):
                assert list(ours) == expected, f"opset {version}: {attribute.name}"
            elif ours is not None:
                assert np.array_equal(ours, expected), f"opset {version}: {attribute.name}"
