"""Replaces two-dimensional convolutions over one axis, as Keras exports `Conv1D`, by one-dimensional ones.

Between the layers that add and remove the other axis, nothing passes a transposition of channels.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from engine.compiler.passes.patterns import Patterns
from engine.compiler.plan import storable
from engine.graph.model import Layer, Model


def drop_unit_axes(model: Model) -> Model:
    """Squeeze(Conv(Unsqueeze(x))) -> Conv(x), where weights have one tap along the axis.

    A Transpose behind Unsqueeze becomes one of the other axes.
    """
    graph, constants, makers = Patterns(model), dict(model.constants), dict(model.constant_factories)
    replaced: dict[str, tuple[Layer, ...]] = {}
    for conv in model.layers:
        weights = graph.constant(conv.inputs[1]) if conv.op_type == "Conv" and not conv.domain else None
        squeeze = None if weights is None else graph.reader(conv.outputs[0], "Squeeze")
        if weights is None or weights.ndim != 4 or squeeze is None:
            continue
        transpose = graph.maker(conv.inputs[0], "Transpose")
        order = list(transpose.attributes.get("perm", ())) if transpose is not None else [0, 1, 2, 3]
        source = conv.inputs[0] if transpose is None else transpose.inputs[0]
        unsqueeze = graph.maker(source, "Unsqueeze")
        added = None if unsqueeze is None else _only_axis(graph, unsqueeze)
        if unsqueeze is None or added is None or len(order) != 4:
            continue
        axis = order.index(added)
        if axis not in (2, 3) or axis != _only_axis(graph, squeeze) or not _passes(conv, weights, axis - 2):
            continue
        name, x, before = f"{conv.name}/weights of one axis", unsqueeze.inputs[0], tuple[Layer, ...]()
        makers[name] = partial(without_axis, weights, axis)
        constants[name] = makers[name]()
        if transpose is not None:
            perm, mark = tuple(a - (a > added) for a in order if a != added), f"{conv.name}/input"
            before = (transpose.replace(name=mark, inputs=(x,), outputs=(mark,), attributes={"perm": perm}),)
            x = mark
        made = conv.replace(
            inputs=(x, name, *conv.inputs[2:]),
            outputs=squeeze.outputs,
            attributes=_of_other_axis(conv, 3 - axis),
        )
        replaced |= {conv.name: (*before, made), squeeze.name: ()}
    if not replaced:
        return model
    layers = tuple(new for layer in model.layers for new in replaced.get(layer.name, (layer,)))
    return model.replace(layers=layers, constants=constants, constant_factories=makers)


def _only_axis(graph: Patterns, layer: Layer) -> int | None:
    """The axis, counted in rank 4, that a layer adds or removes; None if it is unknown or one of several."""
    axes = layer.attributes.get("axes")
    if axes is None and len(layer.inputs) > 1:
        axes = graph.constant(layer.inputs[1])
    listed = [] if axes is None else np.asarray(axes).reshape(-1).tolist()
    return listed[0] % 4 if len(listed) == 1 else None


def _passes(conv: Layer, weights: np.ndarray, place: int) -> bool:
    """Whether a convolution leaves one of its axes, of size 1, as it is."""
    pads, strides = conv.attributes.get("pads") or (0,) * 4, conv.attributes.get("strides") or (1, 1)
    return weights.shape[2 + place] == 1 and pads[place] == pads[2 + place] == 0 and strides[place] == 1


def _of_other_axis(conv: Layer, place: int) -> dict[str, object]:
    """The attributes of a convolution over one of its two axes."""
    given = dict(conv.attributes)
    for name in ("dilations", "kernel_shape", "strides"):
        if given.get(name):
            given[name] = (given[name][place],)
    if given.get("pads"):
        given["pads"] = (given["pads"][place], given["pads"][2 + place])
    return given


@storable
def without_axis(weights: np.ndarray, axis: int) -> np.ndarray:
    """Weights without an axis of size 1."""
    return weights.squeeze(axis)
