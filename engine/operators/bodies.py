"""What the layers of a subgraph tell about its runs."""

from __future__ import annotations

from engine.graph.model import Model

LIGHT = frozenset(
    "Abs Add And Cast Clip Constant Div Equal Exp Greater GreaterOrEqual Identity If Less LessOrEqual Max "
    "Min Mul Neg Not Or Pow Relu Sigmoid Sqrt Sub Sum Tanh Where Xor".split()
)
"""Layers that cost little."""

LIGHT_LAYERS = 6


def is_light(body: Model) -> bool:
    """Whether running a branch in vain costs less than asking whether it is due."""
    layers = [*body.walk()]
    return len(layers) <= LIGHT_LAYERS and all(x.op_type in LIGHT and not x.domain for x in layers)


def always_goes_on(body: Model) -> bool:
    """Whether a loop's body hands its condition on as it came, or as a constant that is true."""
    made_by = {name: layer for layer in body.layers for name in layer.outputs}
    name = body.outputs[0].name
    while (layer := made_by.get(name)) is not None and layer.op_type == "Identity":
        name = layer.inputs[0]
    constant = body.constants.get(name)
    return name == body.inputs[1].name or (constant is not None and bool(constant.all()))
