"""Tree ensembles: a thread traverses one tree for one row, with one load per node."""

from __future__ import annotations

from functools import partial

from engine.backends.gl.compute.flat_grid import emit_with_epilogue
from engine.backends.gl.compute.printer import element
from engine.backends.gl.compute.target import ShaderTarget
from engine.backends.gl.storage import lanes
from engine.backends.gpu.division import divide
from engine.backends.gpu.kernel_dialect import GROUP, ThreadStep
from engine.backends.tree_ensembles import node_records
from engine.base.dtypes import FLOAT32
from engine.compiler.plan import Compute, Tuner
from engine.operators.ml.trees import COMPARISONS

_NODE_NS = 10.0
_NAMES = ("threads", "rows", "features", "depth")


def tune_tree_ensemble(compute: Compute, tuner: Tuner, target: ShaderTarget) -> bool:
    """Rule for hints of kind "tree_ensemble_leaves" of float32."""
    x, nodes, splits, roots = compute.operands
    if x.dtype != FLOAT32 or splits.dtype != FLOAT32 or lanes(compute.output.dtype.name) != 1:
        return False
    if nodes.known is None or splits.known is None or not splits.size or compute.attributes["missing"]:
        return False
    (rows, features), trees, depth = x.shape, roots.size, compute.attributes["depth"]
    if depth > target.limits.max_loop_rounds:
        return False
    label = f"{nodes.root.name}:{splits.root.name}:records"
    records = tuner.constant(label, partial(node_records, nodes.known, splits.known))
    node = "texelFetch(b1, max(at, 0))" if target.texels else "b1[max(at, 0)]"
    value = element("b0", "row * features + node.x", "float32", target.texels)
    passes = f"{value} {COMPARISONS[compute.attributes['mode']]} intBitsToFloat(node.y)"
    lines = [
        "if (t >= threads) return;",
        f"int tree = {divide('t', 'rows')}, row = t - tree * rows;",
        f"int at = {element('b2', 'tree', 'int32', target.texels)};",
        "for (int k = 0; k < depth; ++k) {",
        f"    ivec4 node = {node};",
        f"    at = at < 0 ? at : {passes} ? node.z : node.w;",
        "}",
        "finish(t, -1 - at);",
    ]
    inputs = [(x.root.name, "float32"), (records, "int32"), (roots.root.name, "int32")]
    step = ThreadStep(
        rows * trees, lines, _NAMES, (rows * trees, rows, features, depth), inputs, compute.output.name,
        widths=(1, 4, 1), divisors=("rows",), rounds=("depth",), ns=GROUP * _NODE_NS,
    )  # fmt: skip
    return emit_with_epilogue(compute, tuner, step, target)
