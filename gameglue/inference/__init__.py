"""Inference within the frame's budget: requests to workers, and when their results come."""

from gameglue.inference.queue import InferenceQueue
from gameglue.inference.reading import Pumpable
from gameglue.inference.request import InferenceRequest, RequestState
from gameglue.inference.slack import FrameSlack
from gameglue.inference.stats import QueueStats, WorkerShare

InferenceResult = InferenceRequest
"""What `InferenceQueue.result` gives, by the name it had before requests were one kind of handle."""

__all__ = [
    "FrameSlack",
    "InferenceQueue",
    "InferenceRequest",
    "InferenceResult",
    "Pumpable",
    "QueueStats",
    "RequestState",
    "WorkerShare",
]
