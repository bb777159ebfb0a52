"""`PlayOptions`: a game's command-line options; `ReportCallback`: a callback that adds to the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gameglue.inference.backend_choice import BackendChoice, ProgressCallback

if TYPE_CHECKING:
    from gameglue.host.app import App

ReportCallback = Callable[[], Mapping[str, object]]
"""What a demo adds to the report, called after the last frame."""


@dataclass(frozen=True)
class PlayOptions:
    """Options that the player gave on the command line.

    Attributes:
        choice: The backend; None for what suits the machine.
        autoplay: Whether the game plays by itself.
        seed: The number given as `--seed`, which `app.random` is seeded with already; None without one.
        progress: Reports compiled kernels; pass it to `Worker`.
        full_size: Whether to keep the size that suits a graphics card even if the processor draws, as for the
            frames of an animated image.
    """

    choice: BackendChoice | None = None
    autoplay: bool = False
    seed: int | None = None
    progress: ProgressCallback | None = None
    full_size: bool = False


Build = Callable[["App", PlayOptions], ReportCallback | None]
