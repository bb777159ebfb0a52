"""Whole networks for tests and benchmarks, with inputs to which they respond.

Trained third-party models are read from a folder beside the checkout (or from GAMEGLUE_TEST_MODELS) where
there is one. The `light_*` networks inside the `onnx` package have constant weights; here they get
seeded random ones. Others are made on the spot.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests import sequence_networks, vision_networks
from tests.field.agreement import difference
from tests.images import smooth
from tests.peer import open_session

MODELS = Path(os.environ.get("GAMEGLUE_TEST_MODELS", Path(__file__).parents[1].parent / "shared" / "models"))
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"

LIGHT_NAMES = (
    "squeezenet", "shufflenet", "resnet50", "inception_v1", "inception_v2", "densenet121", "bvlc_alexnet",
    "zfnet512", "vgg19",
)  # fmt: skip
TRAINED_NAMES = (
    "mnist-12", "godot_robotfps_policy", "yunet_n_320", "squeezenet1.1_fp32", "super_resolution_x3",
    "selfie_segmentation_landscape", "dtln_model_1",
)  # fmt: skip

MADE: dict[str, Callable[[], bytes]] = {
    "cnn_policy": vision_networks.cnn_policy,
    "mobilenet_v2": vision_networks.mobilenet_v2,
    "style_transfer": vision_networks.style_transfer,
    "encoder": sequence_networks.encoder,
    "encoder_written_out": lambda: sequence_networks.encoder(written_out=True),
    "decoder": sequence_networks.decoder,
    "lstm": sequence_networks.lstm,
}
"""Networks that are made on the spot, by name."""

Inputs = dict[str, np.ndarray]


def trained_path(name: str) -> Path:
    """Where a trained model lies; it may not be there."""
    return MODELS / f"{name}.onnx"


def trained_inputs(name: str, seed: int = 0) -> Inputs:
    """Inputs to which a trained model responds."""
    rng = np.random.default_rng(seed)
    if name == "mnist-12":
        return {"Input3": smooth((1, 1, 28, 28), seed, 0, 255)}
    if name == "godot_robotfps_policy":
        batch = 1 + seed % 3
        return {
            "obs": rng.normal(size=(batch, 153)).astype(np.float32),
            "state_ins": rng.random(batch).astype(np.float32),
        }
    if name == "yunet_n_320":
        return {"input": smooth((1, 3, 320, 320), seed, 0, 255)}
    if name == "squeezenet1.1_fp32":
        return {"data_0": smooth((1, 3, 224, 224), seed, -2, 2)}
    if name == "super_resolution_x3":
        return {"_ppp5_expanded": smooth((1, 1, 224, 224), seed)}
    if name == "selfie_segmentation_landscape":
        return {"input_1:0": np.ascontiguousarray(smooth((1, 3, 144, 256), seed).transpose(0, 2, 3, 1))}
    assert name == "dtln_model_1"
    return {
        "input_2": np.abs(rng.normal(size=(1, 1, 257))).astype(np.float32),
        "input_3": rng.normal(size=(1, 2, 128, 2)).astype(np.float32) * np.float32(0.3),
    }


def made_inputs(name: str, seed: int = 0) -> Inputs:
    """Inputs to which a network of `MADE` responds; the decoder's cache grows with the seed."""
    if name == "cnn_policy":
        return {"obs": smooth((1, 3, 84, 84), seed)}
    if name == "mobilenet_v2":
        return {"x": smooth((1, 3, 224, 224), seed, -2, 2)}
    if name == "style_transfer":
        return {"picture": smooth((1, 3, 256, 256), seed, 0, 255)}
    if name == "decoder":
        cached = sequence_networks.CACHED
        return sequence_networks.decoder_inputs(seed, cached[seed % len(cached)])
    shape = (50, 1, 64) if name == "lstm" else (1, sequence_networks.TOKENS, sequence_networks.WIDTH)
    return {"x": np.random.default_rng(seed).normal(size=shape).astype(np.float32)}


def made_calls(name: str) -> Sequence[Inputs]:
    """What is asked one after the other: once, or of the decoder for every length of its cache."""
    return [made_inputs(name, i) for i in range(len(sequence_networks.CACHED) if name == "decoder" else 1)]


def light_inputs(model: onnx.ModelProto, seed: int = 0) -> Inputs:
    """A smooth picture for a light network."""
    (item,) = model.graph.input
    shape = tuple(d.dim_value for d in item.type.tensor_type.shape.dim)
    return {item.name: smooth(shape, seed, -2, 2)}


@cache
def light_network(name: str) -> bytes:
    """A light network with seeded random weights (He-scaled) and batch-norm statistics of one run.

    Its output is what goes into the final softmax, which would squash differences.
    """
    model = onnx.load(LIGHT / f"light_{name}.onnx")
    graph = model.graph
    shapes = {t.name: tuple(numpy_helper.to_array(t)) for t in graph.initializer}
    users: dict[str, tuple[onnx.NodeProto, int]] = {}
    for node in graph.node:
        for position, value in enumerate(node.input):
            users.setdefault(value, (node, position))
    rng = np.random.default_rng(sum(map(ord, name)))
    kept = [n for n in graph.node if n.op_type != "ConstantOfShape"]
    made = []
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            shape = tuple(int(n) for n in shapes[node.input[0]])
            array = _weights(rng, shape, *users[node.output[0]])
            made.append(numpy_helper.from_array(array, node.output[0]))
    if kept[-1].op_type == "Softmax":
        last = kept.pop()
        graph.output[0].name = last.input[0]
        graph.output[0].type.tensor_type.ClearField("shape")
    used = {value for node in kept for value in node.input}
    made += [t for t in graph.initializer if t.name in used]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(kept)
    graph.initializer.extend(made)
    weights = {t.name for t in made}
    pictures = [i for i in graph.input if i.name not in weights and i.name in used]
    del graph.input[:]
    graph.input.extend(pictures)
    _set_statistics(model)
    return bytes(model.SerializeToString())


def _weights(
    rng: np.random.Generator, shape: tuple[int, ...], user: onnx.NodeProto, position: int
) -> np.ndarray:
    op = user.op_type
    if op in ("Conv", "Gemm") and position == 1:
        transposed = any(a.name == "transB" and a.i for a in user.attribute)
        fan_in = shape[0] if op == "Gemm" and not transposed else int(np.prod(shape[1:]))
        return rng.normal(0, np.sqrt(2 / fan_in), shape).astype(np.float32)
    if op == "BatchNormalization" and position in (1, 4) or op in ("Mul", "Unsqueeze") and position == 0:
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    return rng.normal(0, 0.1, shape).astype(np.float32)


def _set_statistics(model: onnx.ModelProto) -> None:
    """With one sample, batch normalisation by the batch's own statistics is instance normalisation."""
    norms = [n for n in model.graph.node if n.op_type == "BatchNormalization"]
    if not norms:
        return

    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    for node in probe.graph.node:
        if node.op_type == "BatchNormalization":
            node.op_type = "InstanceNormalization"
            del node.input[3:]
            kept = [a for a in node.attribute if a.name == "epsilon"]
            del node.attribute[:]
            node.attribute.extend(kept)
    used = {value for node in probe.graph.node for value in node.input}
    kept_tensors = [t for t in probe.graph.initializer if t.name in used]
    del probe.graph.initializer[:]
    probe.graph.initializer.extend(kept_tensors)
    del probe.graph.output[:]
    probe.graph.output.extend(
        helper.make_tensor_value_info(n.input[0], onnx.TensorProto.FLOAT, None) for n in norms
    )
    session = open_session(probe.SerializeToString())
    results = session.run(None, light_inputs(model))
    statistics: dict[str, np.ndarray] = {}
    for node, x in zip(norms, results, strict=True):
        statistics[node.input[3]] = x.mean(axis=(0, 2, 3), dtype=np.float64).astype(np.float32)
        statistics[node.input[4]] = x.var(axis=(0, 2, 3), dtype=np.float64).astype(np.float32)
    for tensor in model.graph.initializer:
        if tensor.name in statistics:
            tensor.CopyFrom(numpy_helper.from_array(statistics[tensor.name], tensor.name))


def reference(
    source: str | bytes, inputs: Inputs, optimised: bool = True, threads: int = 0
) -> dict[str, np.ndarray]:
    """onnxruntime's outputs; with several threads its sums of scattered updates lose some now and then."""
    session = open_session(source, optimised=optimised, threads=threads)
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def error(actual: Any, expected: Any) -> float:
    """max |a - b| / max(1, max |b|); of text and maps, which this engine has as arrays, see `difference`."""
    if isinstance(expected, list):
        return difference(actual if isinstance(actual, list) else actual.tolist(), expected)
    if expected.dtype == object:
        return difference(actual, expected)
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    found, right = (np.asarray(x, np.float64) for x in (actual, expected))
    return float(np.max(np.abs(found - right)) / max(1.0, float(np.max(np.abs(right)))))


def uncertainty(source: str | bytes, inputs: Inputs) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Expected outputs, and for each the error between onnxruntime's optimised and unoptimised run."""
    expected = reference(source, inputs)
    plain = reference(source, inputs, optimised=False)
    return expected, {n: error(plain[n], expected[n]) for n in expected}


def bounds(
    source: str | bytes, inputs: Inputs, floor: float
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Expected outputs, and the error allowed for each: `floor`, or 4 times onnxruntime's own uncertainty."""
    expected, own = uncertainty(source, inputs)
    return expected, {n: max(floor, 4 * own[n]) for n in expected}
