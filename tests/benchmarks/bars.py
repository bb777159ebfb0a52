"""What the CPU backend shall reach with two threads in float32, and which figures do not."""

from __future__ import annotations

from dataclasses import dataclass

MISSED = " !"
"""Follows a figure that misses its bar."""

MEAN_RATIO = {"onnxruntime": 1.3, "openvino": 1.0}
"""Least geometric mean of their time / our time."""

WORST_RATIO = {"onnxruntime": 0.9}
"""Least of any single network."""

SINGLE_RATIO = {("policy", "onnxruntime"): 1.0}
"""Least of one network, where it is more."""

SCHEDULE_SECONDS = {"squeezenet1.1_fp32": 30e-6}
"""Most that `schedule` of tensors may take of the calling thread; an array is copied as fast as memory is."""

SCHEDULE_BYTES = 4096
"""Most that `schedule` may take from Python's memory: its objects, but no arrays."""

LOAD_SECONDS = 0.020
"""What a load with warm caches may take at least; onnxruntime's session creation where that takes longer."""

COLD_SECONDS = {"light_resnet50": 10.0}
"""Most from an empty cache to the first answer."""

PEAK_RATIO = 1.2
"""Most of onnxruntime's growth of memory."""


@dataclass
class Verdict:
    """One bar: how it went, network by network."""

    name: str
    bar: str
    missed: tuple[str, ...] = ()
    judged: int = 0

    def judge(self, name: str, figure: str, holds: bool) -> str:
        """The figure with its mark; notes whether it holds."""
        self.judged += 1
        if holds:
            return figure
        self.missed += (f"{name} {figure}",)
        return figure + MISSED


def least_ratio(name: str, peer: str) -> float | None:
    """What a network's ratio against a peer shall be at least, if anything."""
    return SINGLE_RATIO.get((name, peer), WORST_RATIO.get(peer))


def most_load(peer_load: float) -> float:
    """What a load may take, in seconds."""
    return max(LOAD_SECONDS, peer_load)
