"""Keras networks with random weights, through Keras's own export, and as older and TensorFlow Lite models.

    python -m tests.field.sources.keras_models FOLDER

Needs the packages of requirements/keras.txt. All of these exports are tf2onnx's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import onnx
import tensorflow as tf
import tf2onnx
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from tests.field.feeds import Feed, write_feeds
from tests.field.sources.exporting import export_all
from tests.images import smooth

layers = keras.layers
IMAGE = (64, 64, 3)
SERIES = (None, 8)


def sequential(shape: tuple[int | None, ...], *stack: Any, dtype: str | None = None) -> Any:
    """A chain of layers."""
    return keras.Sequential([keras.Input(shape, dtype=dtype), *stack])


def residual() -> Any:
    """Convolutions with batch normalisation and a skip connection."""
    x = keras.Input((None, None, 3))
    y = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(16, 3, strides=2, padding="same")(x)))
    z = layers.SeparableConv2D(16, 3, padding="same")(y)
    z = layers.Add()([y, layers.Activation("swish")(z)])
    return keras.Model(x, layers.Dense(5, "softmax")(layers.GlobalAveragePooling2D()(z)))


def unet() -> Any:
    """Down and up again, with a skip connection; resizing wants a known size."""
    x = keras.Input(IMAGE)
    a = layers.Conv2D(8, 3, padding="same", activation="relu")(x)
    b = layers.Conv2D(16, 3, padding="same", activation="relu")(layers.MaxPooling2D()(a))
    up = layers.Conv2DTranspose(8, 3, strides=2, padding="same")(b)
    both = layers.Concatenate()([a, up, layers.UpSampling2D(interpolation="bilinear")(b)])
    return keras.Model(x, layers.Conv2D(1, 1, activation="sigmoid")(both))


def transformer() -> Any:
    """A block of attention over words."""
    words = keras.Input((None,), dtype="int32")
    x = layers.Embedding(50, 16)(words)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 8)(x, x))
    x = layers.LayerNormalization()(x + layers.Dense(16)(layers.Dense(32, "gelu")(x)))
    return keras.Model(words, layers.Dense(3)(layers.GlobalAveragePooling1D()(x)))


def policy() -> Any:
    """A policy with two inputs and two heads."""
    screen, speed = keras.Input((42, 42, 4)), keras.Input((6,))
    x = layers.Flatten()(layers.Conv2D(8, 4, strides=2, activation="elu")(screen / 255.0))
    x = layers.Concatenate()([layers.Dense(32, "tanh")(x), layers.Dense(8, "tanh")(speed)])
    return keras.Model([screen, speed], [layers.Dense(4)(x), layers.Dense(1)(x)])


NETWORKS: Mapping[str, Callable[[], Any]] = {
    "mlp": lambda: sequential(
        (8,), layers.Dense(32, "selu"), layers.Dropout(0.5), layers.Dense(3, "softmax")
    ),
    "residual": residual,
    "unet": unet,
    "mobilenet": lambda: keras.applications.MobileNetV2(IMAGE, alpha=0.35, weights=None, classes=10),
    "mobilenet_v3": lambda: keras.applications.MobileNetV3Small(IMAGE, alpha=0.75, weights=None, classes=10),
    "lstm": lambda: sequential(
        SERIES, layers.LSTM(12, return_sequences=True), layers.LSTM(6), layers.Dense(2)
    ),
    "gru": lambda: sequential(SERIES, layers.Bidirectional(layers.GRU(12)), layers.Dense(2)),
    "rnn": lambda: sequential(SERIES, layers.SimpleRNN(12, return_sequences=True), layers.Dense(2)),
    "masked_lstm": lambda: sequential(
        (None,), layers.Embedding(50, 8, mask_zero=True), layers.LSTM(12), layers.Dense(2), dtype="int32"
    ),
    "conv1d": lambda: sequential(
        SERIES, layers.Conv1D(8, 3, padding="causal", dilation_rate=2, activation="relu"), layers.Conv1D(4, 3)
    ),
    "transformer": transformer,
    "policy": policy,
}


def feed(inputs: Sequence[onnx.ValueInfoProto], batch: int, length: int) -> Feed:
    """Inputs whose symbolic sizes are as given: the first is the batch."""
    rng = np.random.default_rng(batch + length)
    made: Feed = {}
    for item in inputs:
        dims = item.type.tensor_type.shape.dim
        shape = tuple(d.dim_value or (length if n else batch) for n, d in enumerate(dims))
        if item.type.tensor_type.elem_type == onnx.TensorProto.INT32:
            made[item.name] = rng.integers(0, 50, shape, dtype=np.int32)
        elif len(shape) == 4:
            count, height, width, channels = shape
            picture = smooth((count, channels, height, width), length, 0, 255 if channels == 4 else 1)
            made[item.name] = np.ascontiguousarray(picture.transpose(0, 2, 3, 1))
        else:
            made[item.name] = rng.normal(size=shape).astype(np.float32)
    return made


def built(name: str) -> Any:
    """The network. One that was never called has no shapes to export."""
    keras.utils.set_random_seed(0)
    model = NETWORKS[name]()
    model([np.zeros(shape, i.dtype) for shape, i in zip(shapes_of(model, 2), model.inputs, strict=True)])
    return model


def shapes_of(model: Any, batch: int) -> list[list[int]]:
    """The shapes of a network's inputs for a length of 32."""
    return [[n or (32 if d else batch) for d, n in enumerate(i.shape)] for i in model.inputs]


def as_function(model: Any, shapes: Sequence[Sequence[int | None]]) -> tuple[Any, list[tf.TensorSpec]]:
    """The network as a function of its inputs by position, and what these are."""
    spec = [
        tf.TensorSpec(s, i.dtype, f"x{n}") for n, (s, i) in enumerate(zip(shapes, model.inputs, strict=True))
    ]
    return tf.function(lambda *x: model(x[0] if len(x) == 1 else list(x)), input_signature=spec), spec


def exported(model: Any, target: Path) -> None:
    """Keras's own export."""
    model.export(str(target), format="onnx", verbose=False)


def older(model: Any, target: Path) -> None:
    """An opset of models that were published long ago."""
    function, spec = as_function(model, [i.shape for i in model.inputs])
    tf2onnx.convert.from_function(function, spec, opset=9, output_path=str(target))


def lite(model: Any, target: Path, in_int8: bool = False) -> None:
    """A TensorFlow Lite model of fixed sizes, in float32 or calibrated to 8 bits."""
    shapes = shapes_of(model, 1)
    function, _ = as_function(model, shapes)
    frozen = convert_variables_to_constants_v2(function.get_concrete_function())
    converter = tf.lite.TFLiteConverter.from_concrete_functions([frozen])
    if in_int8:
        rng = np.random.default_rng(0)

        def samples() -> Iterator[list[np.ndarray]]:
            for _ in range(8):
                yield [rng.uniform(0, 1, shape).astype(np.float32) for shape in shapes]

        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = samples
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    file = target.with_suffix(".tflite")
    file.write_bytes(converter.convert())
    try:
        tf2onnx.convert.from_tflite(str(file), opset=15, output_path=str(target))
    finally:
        file.unlink()


FORMS: Mapping[str, tuple[Callable[[Any, Path], None], Sequence[str]]] = {
    "": (exported, tuple(NETWORKS)),
    "opset9": (older, ("residual", "mobilenet_v3", "lstm", "rnn", "masked_lstm", "conv1d")),
    "lite": (
        lite,
        ("mlp", "residual", "unet", "mobilenet_v3", "gru", "rnn", "masked_lstm", "conv1d", "policy"),
    ),
    "lite_int8": (partial(lite, in_int8=True), ("mlp", "residual", "mobilenet")),
}
"""How models are written, and of which networks; the others are refused by tf2onnx or by onnxruntime."""


def write(name: str, target: Path) -> None:
    """Export a network, named FORM-NETWORK. Raises what the exporter raises."""
    form, _, network = name.rpartition("-")
    FORMS[form][0](built(network), target)
    graph = onnx.load(target).graph
    # Old models list their weights among the inputs.
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [item for item in graph.input if item.name not in weights]
    write_feeds(target, [feed(inputs, 2, 32), feed(inputs, 1, 32), feed(inputs, 1, 48)])


def main(argv: Sequence[str] | None = None) -> None:
    """Export them all."""
    names = [f"{form}-{n}" if form else n for form, (_, networks) in FORMS.items() for n in networks]
    export_all("keras_models", __doc__, names, write, argv)


if __name__ == "__main__":
    main()
