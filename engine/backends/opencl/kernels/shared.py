"""OpenCL C versions of the kernels that OpenCL and GL compute share."""

from __future__ import annotations

import numpy as np

from engine.backends.gpu.expert_matmul import ExpertProduct
from engine.backends.gpu.interpolation import Interpolation
from engine.backends.gpu.kernels import GROUP, Kernels, Text, ThreadStep
from engine.backends.gpu.non_max_suppression import Suppression
from engine.backends.gpu.roi_align import Regions
from engine.backends.gpu.scans import Blocks, MarkedRows, Marks
from engine.backends.opencl.codegen.printer import element
from engine.backends.opencl.codegen.tuned_kernel import build, divide, divisor_names, divisor_values, indent
from engine.backends.opencl.kernels.expert_matmul import TILES, emit_product, pack_experts
from engine.backends.opencl.kernels.interpolation import emit_blend
from engine.backends.opencl.kernels.non_max_suppression import emit_alone, emit_step
from engine.backends.opencl.kernels.roi_align import emit_means
from engine.backends.opencl.kernels.scans import emit_blocks, emit_marks, emit_rows
from engine.backends.opencl.kernels.sort import SORT_HEAD, SORTED_ALONE, sort_statements
from engine.compiler.plan import Tuner
from engine.kernels.value import Value

_INPUTS = "XLP"
"""Names of the tensors that a `ThreadStep` reads."""


class CLKernels(Kernels):
    """Kernels in OpenCL C, of a form, "cpu" or "gpu"."""

    output, shared, barrier = "y", "__local", "barrier(CLK_LOCAL_MEM_FENCE);"
    as_int, bits = "(int){}", "as_int({})"

    def __init__(self, form: str) -> None:
        self._form = form
        if form == "cpu":
            self.emit_sorted_block, self.alone = self._emit_sorted_block, SORTED_ALONE
        self.tile = TILES[form]

    def fits(self, elements: int, dtype: np.dtype) -> bool:
        return True

    def load(self, slot: int, position: str, kind: str) -> str:
        return element(kind, _INPUTS[slot], position)

    def divide(self, number: str, by: str) -> str:
        return divide(number, by)

    def raised(self, position: str, number: str) -> str:
        return f"atomic_max(y + {position}, {number});"

    def emit(self, tuner: Tuner, step: ThreadStep) -> bool:
        thread = f"const int t = (f0 + (int)get_group_id(0)) * {GROUP} + (int)get_local_id(0);"
        body = indent([*step.shared, thread, *step.lines], 1)
        return self._emit(tuner, step, body, GROUP)

    def _emit_sorted_block(
        self, tuner: Tuner, step: ThreadStep, length: str, read: Text, place: Text, is_last: bool
    ) -> bool:
        return self._emit(tuner, step, sort_statements(length, read, place, is_last), 1, SORT_HEAD)

    @staticmethod
    def _emit(tuner: Tuner, step: ThreadStep, body: str, local: int, head: str = "") -> bool:
        operands = [f"{name}:{kind}" for name, (_, kind) in zip(_INPUTS, step.inputs, strict=False)]
        names = (*step.names, *divisor_names(step.divisors))
        values = (*step.values, *divisor_values(step.divided_by))
        kernel = build(body, None, operands, names, (local, 1, 1), output="int32", area=step.area, head=head)
        tensors = tuple(tensor for tensor, _ in step.inputs)
        tuner.emit(kernel, (-(-step.threads // local), 1, 1), values, tensors, step.output)
        return True

    def emit_blocks(self, tuner: Tuner, blocks: Blocks) -> bool:
        return emit_blocks(blocks, tuner.compute, tuner)

    def emit_rows(self, tuner: Tuner, rows: MarkedRows) -> bool:
        return emit_rows(rows, tuner.compute, tuner, self._form)

    def emit_marks(self, tuner: Tuner, marks: Marks) -> bool:
        return emit_marks(marks, tuner.compute, tuner)

    def emit_means(self, tuner: Tuner, step: Regions) -> bool:
        return emit_means(step, tuner, self._form)

    def emit_blend(self, tuner: Tuner, blend: Interpolation) -> bool:
        return emit_blend(blend, tuner, self._form)

    def emit_suppression(self, tuner: Tuner, step: Suppression) -> bool:
        return (emit_step if self._form == "gpu" else emit_alone)(tuner, step)

    def pack_experts(self, tuner: Tuner, weights: Value) -> str:
        return pack_experts(weights, tuner, self._form)

    def emit_product(self, tuner: Tuner, product: ExpertProduct) -> bool:
        return emit_product(product, tuner.compute, tuner, self._form)
