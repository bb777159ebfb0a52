"""Inference within the frame's budget: requests to workers, and when their results come."""

from gameglue.inference.queue import InferenceQueue
from gameglue.inference.readback import Pumpable
from gameglue.inference.request import InferenceRequest, RequestState
from gameglue.inference.slack import FrameSlack
from gameglue.inference.stats import QueueStats, WorkerStats

__all__ = [
    "FrameSlack",
    "InferenceQueue",
    "InferenceRequest",
    "Pumpable",
    "QueueStats",
    "RequestState",
    "WorkerStats",
]
