"""What does not run as it should, and why that is accepted. Whatever is not listed here fails the suite."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass


@dataclass(frozen=True)
class Accepted:
    """A failure or fallback that is known.

    model: SOURCE/NAME, with wildcards. backend: with wildcards; "source" where the model cannot be made.
    what: part of the message, or of the fallback's "OPERATOR: reason". why: for the reader.
    """

    model: str
    backend: str
    what: str
    why: str

    def covers(self, model: str, backend: str, message: str) -> bool:
        """Whether a message about a model on a backend is this one."""
        fits = fnmatch.fnmatch(model, self.model) and fnmatch.fnmatch(backend, self.backend)
        return fits and self.what in message


ACCEPTED = (
    Accepted("genai/smollm3-*", "source", "position_ids", "the builder fails on it itself"),
    Accepted("genai/gptoss-int4*", "source", "MXFP4", "the builder takes these weights as published only"),
    Accepted(
        "transformed/float16*", "source", "Type Error", "the converter's model is none that onnxruntime runs"
    ),
    Accepted(
        "transformed/all-*", "*", "nchwc", "onnxruntime's layout for one processor; the error names the level"
    ),
    Accepted("published/swift-f0-model", "gl_*", "GLSL kernels have no float64", "it computes in float64"),
    Accepted(
        "transformed/dynamic-magika*", "*", "e-05, 1", "it rounds to steps, and integers cannot be nudged"
    ),
    Accepted("transformed/int4*", "source", "no product", "it has no products with weights"),
    Accepted("transformed/qdq_channel-*", "source", "truth value", "the quantiser fails on it itself"),
)


def reason(model: str, backend: str, message: str) -> str | None:
    """Why a failure or fallback is accepted; None if it is not."""
    return next((a.why for a in ACCEPTED if a.covers(model, backend, message)), None)
