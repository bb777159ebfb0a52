# mypy: allow-untyped-defs, allow-incomplete-defs
"""Weighted sums of vectors of channels."""

from llvmlite import ir

from engine.backends.cpu.library.llvm_intrinsic import llvm_intrinsic
from engine.backends.cpu.library.vectors import _SINGLE


def make_blend_channels(taps, step, lanes):
    """blend_channels(addresses, behind, weights, target): adds taps of `lanes` channels to `target`.

    A tap's channels are `behind` bytes behind its address. Addresses and weights of consecutive taps are
    `step` entries apart.
    """
    kind = ir.VectorType(_SINGLE, lanes)

    @llvm_intrinsic()
    def blend_channels(addresses, behind, weights, target):
        total = target.read(kind)
        for t in range(taps):
            weight = (weights + 4 * step * t).read(_SINGLE).spread(lanes)
            total = (addresses.word(step * t) + behind).read(kind).times_plus(weight, total)
        target.write(total)

    return blend_channels
