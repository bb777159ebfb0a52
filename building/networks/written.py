"""Networks of kinds that games use, written here: detectors, segmentation, sound, and quantised layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Name = str


class Writer:
    """An ONNX graph that grows by a layer at a time; weights are small and all alike."""

    def __init__(self, **inputs: Sequence[int | str]) -> None:
        """`inputs` are the shapes of float32 inputs, dynamic dimensions by name."""
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs = inputs
        self.depth = {name: n for name, shape in inputs.items() for n in shape[1:2] if isinstance(n, int)}

    def constant(self, array: np.ndarray) -> Name:
        """A tensor of the file."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def weights(self, *shape: int, dtype: str = "float32") -> Name:
        """Weights of a shape."""
        return self.constant(np.full(shape, 1 if np.dtype(dtype).kind in "iu" else 0.01, dtype))

    def add(self, op_type: str, *inputs: Name, outputs: int = 1, **attributes: Any) -> Name:
        """A layer; returns its first output."""
        names = [f"t{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op_type, list(inputs), names, **attributes))
        if inputs and inputs[0] in self.depth:
            self.depth[names[0]] = self.depth[inputs[0]]
        return names[0]

    def conv(self, x: Name, out: int, size: int = 3, stride: int = 1, group: int = 1) -> Name:
        """A convolution over two axes with padding that keeps sizes."""
        given = [x, self.weights(out, self.depth[x] // group, size, size), self.weights(out)]
        pads = [(size - 1) // 2] * 4
        y = self.add("Conv", *given, strides=[stride] * 2, pads=pads, group=group)
        self.depth[y] = out
        return y

    def act(self, x: Name, kind: str) -> Name:
        """An activation, as exporters write it."""
        if kind == "SiLU":
            return self.add("Mul", x, self.add("Sigmoid", x))
        if kind == "HardSwish":
            return self.add("HardSwish", x)
        return self.add(kind, x)

    def concat(self, *inputs: Name) -> Name:
        """Channels one after another."""
        y = self.add("Concat", *inputs, axis=1)
        self.depth[y] = sum(self.depth[x] for x in inputs)
        return y

    def twice(self, x: Name, mode: str) -> Name:
        """Twice as wide and high."""
        sizes = self.constant(np.array([1, 1, 2, 2], np.float32))
        if mode == "linear":
            return self.add("Resize", x, "", sizes, mode=mode)
        whole = "asymmetric"
        return self.add(
            "Resize", x, "", sizes, mode=mode, coordinate_transformation_mode=whole, nearest_mode="floor"
        )

    def finished(self, *outputs: Name) -> bytes:
        """The file."""
        given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in self.inputs.items()]
        results = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph(self.nodes, "network", given, results, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return bytes(model.SerializeToString())


def separable(w: Writer, x: Name, out: int, act: str, stride: int = 1, size: int = 3) -> Name:
    """A depthwise convolution between two over the channels."""
    depth = w.depth[x]
    x = w.act(w.conv(x, depth, size, stride, depth), act)
    return w.act(w.conv(x, out, 1), act)


OPEN = ("batch", 3, "height", "width")
FIXED = (1, 3, 320, 320)


def detector(act: str, head: str, sizes: Sequence[int | str]) -> bytes:
    """Faces or things at several scales, with an upward path."""
    w = Writer(image=sizes)
    x = w.act(w.conv("image", 16, 3, 2), act)
    levels = []
    for number, out in enumerate((16, 32, 64, 64)):
        x = separable(w, x, out, act, 2 if number else 1)
        halves = w.conv(x, out // 2, 1), w.conv(x, out // 2, 1)
        inner = w.add("Add", w.act(w.conv(w.act(halves[1], act), out // 2), act), halves[1])
        x = w.act(w.conv(w.concat(halves[0], halves[1], inner), out, 1), act)
        levels.append(x)
    pooled = [levels[-1]]
    for _ in range(3):
        pooled.append(w.add("MaxPool", pooled[-1], kernel_shape=[5, 5], pads=[2] * 4, strides=[1, 1]))
    levels[-1] = w.act(w.conv(w.concat(*pooled), 64, 1), act)
    up = w.twice(levels[-1], "nearest")
    levels[-2] = w.add("Add", *((up, w.conv(levels[-2], 64, 1)) if head == "wide" else (levels[-2], up)))
    outputs = []
    for level in levels[-2:]:
        for channels, last in ((1, "Sigmoid"), (4, ""), (10, ""), (80, "Sigmoid")):
            if head == "wide":
                y = w.conv(separable(w, level, 64, act), channels)
            else:
                y = w.conv(w.conv(level, channels, 1), channels, group=channels)
            rows = w.add("Transpose", y, perm=[0, 2, 3, 1])
            shape = w.constant(np.array([0, -1, channels], np.int64))
            flat = w.add("Reshape", rows, shape)
            outputs.append(w.add(last, flat) if last else flat)
    return w.finished(*outputs)


def boxes() -> bytes:
    """The best boxes of a detector, suppressed."""
    w = Writer(boxes=["batch", "count", 4], scores=["batch", 80, "count"])
    limits = (np.array([100], np.int64), np.array([0.5], np.float32), np.array([0.3], np.float32))
    kept = w.add("NonMaxSuppression", "boxes", "scores", *(w.constant(limit) for limit in limits))
    best = w.add("ReduceMax", "scores", axes=[1], keepdims=0)
    which = w.add("ArgMax", "scores", axis=1, keepdims=0)
    top = w.add("TopK", best, w.constant(np.array([20], np.int64)), outputs=2, axis=1)
    found = w.add("NonZero", w.add("Greater", best, w.constant(np.array(0.3, np.float32))))
    return w.finished(kept, which, top, found)


def segmentation(act: str, sizes: Sequence[int | str]) -> bytes:
    """A mask of the size of the picture, with gates over channels."""
    w = Writer(image=sizes)
    x, skips = w.act(w.conv("image", 16, 3, 2), act), []
    for out, size in ((16, 3), (24, 5), (40, 5), (96, 5)):
        skips.append(x)
        x = separable(w, x, out, act, 2, size)
        mean = w.add("GlobalAveragePool", x)
        gate = w.act(w.conv(w.act(w.conv(mean, out // 2, 1), "Relu"), out, 1), "HardSigmoid")
        x = w.add("Mul", x, gate)
    for skip in reversed(skips):
        x = w.twice(x, "linear")
        depth = w.depth[skip]
        x = w.act(w.conv(w.add("Add", w.conv(x, depth, 1), skip), depth), act)
    up = w.add("ConvTranspose", x, w.weights(w.depth[x], 1, 2, 2), strides=[2, 2])
    return w.finished(w.add("Sigmoid", up))


def sound() -> bytes:
    """A filter bank, convolutions over time, and a recurrent layer whose state goes around."""
    w = Writer(wave=["batch", 1, "samples"], h=[1, "batch", 64], c=[1, "batch", 64])
    bank = w.add("Conv", "wave", w.weights(130, 1, 256), strides=[128])
    parts = [
        w.add("Slice", bank, *(w.constant(np.array([n], np.int64)) for n in (a, a + 65, 1))) for a in (0, 65)
    ]
    x = w.add("Sqrt", w.add("Add", *(w.add("Mul", part, part) for part in parts)))
    x = w.add("Log", w.add("Add", x, w.constant(np.array(1e-5, np.float32))))
    depth = 65
    for out, stride in ((128, 1), (64, 2), (64, 2), (128, 1)):
        given = x, w.weights(out, depth, 3), w.weights(out)
        x, depth = w.add("Relu", w.add("Conv", *given, strides=[stride], pads=[1, 1])), out
    steps = w.add("Transpose", x, perm=[2, 0, 1])
    gates = w.weights(1, 256, 128), w.weights(1, 256, 64), w.weights(1, 512)
    y = w.add("LSTM", steps, *gates, "", "h", "c", outputs=3, hidden_size=64)
    last = w.add("Relu", w.add("Squeeze", y, w.constant(np.array([1], np.int64))))
    score = w.add("Sigmoid", w.add("MatMul", last, w.weights(64, 1)))
    return w.finished(score, y.replace("_0", "_1"), y.replace("_0", "_2"))


def quantised(form: str) -> bytes:
    """Convolutions and a product of 8 bits, between float ones or as quantised layers."""
    w = Writer(image=["batch", 3, "height", "width"])
    scale, zero = w.constant(np.array(0.02, np.float32)), w.constant(np.array(128, np.uint8))
    steps, none = w.constant(np.array(0.01, np.float32)), w.constant(np.array(0, np.int8))
    x, depth = w.add("QuantizeLinear", "image", scale, zero), 3
    for out, size, group in ((16, 3, 1), (16, 3, 16), (32, 1, 1), (32, 3, 1)):
        weights = w.weights(out, depth // group, size, size, dtype="int8")
        own: dict[str, Any] = {
            "group": group,
            "pads": [(size - 1) // 2] * 4,
            "strides": [1 + (group > 1)] * 2,
        }
        if form == "operators":
            bias = w.weights(out, dtype="int32")
            x = w.add("QLinearConv", x, scale, zero, weights, steps, none, scale, zero, bias, **own)
        elif form == "between":
            given = w.add("DequantizeLinear", x, scale, zero), w.add("DequantizeLinear", weights, steps, none)
            y = w.add("Relu", w.add("Conv", *given, w.weights(out), **own))
            x = w.add("QuantizeLinear", y, scale, zero)
        else:
            y = w.add("Cast", w.add("ConvInteger", x, weights, zero, none, **own), to=TensorProto.FLOAT)
            back = w.add("Relu", w.add("Mul", y, w.constant(np.array(0.0002, np.float32))))
            x = w.add("DynamicQuantizeLinear", back, outputs=3)
        depth = out
    means = w.add("GlobalAveragePool", w.add("DequantizeLinear", x, scale, zero))
    flat = w.add("QuantizeLinear", w.add("Flatten", means), scale, zero)
    whole = w.add("MatMulInteger", flat, w.weights(32, 10, dtype="int8"), zero, none)
    last = w.add(
        "QLinearMatMul", flat, scale, zero, w.weights(32, 10, dtype="int8"), steps, none, scale, zero
    )
    return w.finished(whole, last)


def written() -> Iterator[tuple[str, bytes]]:
    """The networks, by name."""
    for act, head in (("Relu", "narrow"), ("SiLU", "wide"), ("HardSwish", "narrow")):
        for name, sizes in (("open", OPEN), ("fixed", FIXED)):
            yield f"detector_{act}_{name}", detector(act, head, sizes)
            yield f"segmentation_{act}_{name}", segmentation(act, sizes)
    yield "boxes", boxes()
    yield "sound", sound()
    for form in ("operators", "between", "dynamic"):
        yield f"quantised_{form}", quantised(form)
