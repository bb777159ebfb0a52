"""The engine has every operator that onnxruntime's CPU runs beyond ONNX, with every attribute and input."""

from __future__ import annotations

import onnxruntime.capi.onnxruntime_pybind11_state as ort
import pytest

from engine.operators import OPERATORS

DOMAIN = "com.microsoft"
LEFT_OUT = {
    "AttnLSTM": "an LSTM with attention inside, which no exporter has written since 2019",
    "BeamSearch": "a whole search over a decoder; the loader names what to export instead",
    "GatherPacked": "rows in the layouts of llama.cpp's files",
    "GreedySearch": "as BeamSearch",
    "MatMulFpQ4": "weights in a layout that onnxruntime changes with the processor",
    "MaxpoolWithMask": "for onnxruntime's internal use, as its documentation says",
    "Sampling": "as BeamSearch",
    "SparseToDenseMatMul": "sparse tensors as inputs of layers",
    "VarlenNGramHashMapping": "NGramHashMapping of joined sequences, which no exporter writes",
    "WhisperBeamSearch": "as BeamSearch",
    "WordConvEmbedding": "an embedding of words by letters, which no exporter writes",
}
"""Operators that the engine does not have, and why."""


def names(domain: str) -> list[str]:
    """What onnxruntime's CPU runs in a domain."""
    kernels = ort.get_all_opkernel_def()
    return sorted({d.op_name for d in kernels if d.provider == "CPUExecutionProvider" and d.domain == domain})


@pytest.mark.parametrize("name", [n for n in names(DOMAIN) if n not in LEFT_OUT])
def test_every_operator_takes_what_onnxruntime_gives_it(name: str) -> None:
    operator = OPERATORS.find(DOMAIN, name, 1)
    assert operator is not None
    for schema in ort.get_all_operator_schema():
        if (schema.domain, schema.name) != (DOMAIN, name):
            continue
        assert set(schema.attributes) <= set(operator.attributes)
        if operator.variadic is None:
            assert len(schema.inputs) <= len(operator.inputs)
        for given, own in zip(schema.inputs, operator.inputs, strict=False):
            if given.option == ort.schemadef.OpSchema.FormalParameterOption.Optional:
                assert own in operator.optional, given.name


def test_what_is_left_out_is_not_there() -> None:
    there = {o.name for o in OPERATORS if o.domain == DOMAIN}
    assert not there & set(LEFT_OUT)
    assert set(LEFT_OUT) <= set(names(DOMAIN))


def test_onnx_s_own_domain_has_all_too() -> None:
    """Some drafts of ONNX among them."""
    known = {o.name for o in OPERATORS if not o.domain}
    assert not [n for n in names("") if n not in known]
