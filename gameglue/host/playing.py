"""What a demo is told when it is built, and what it tells when it has been played."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gameglue.inference.backend_choice import BackendChoice, Progress

if TYPE_CHECKING:
    from gameglue.host.app import App

Facts = Callable[[], Mapping[str, object]]
"""What a demo wants in the report, asked for after the last frame."""


@dataclass(frozen=True)
class PlayOptions:
    """What the player asked for.

    choice: the backend, `None` if the demo is to take what suits the machine. autoplay: play by itself.
    seed: what was given as `--seed`; `app.random` is seeded with it already. progress: for `Worker`.
    full_size: keep the size that suits a graphics card, even where the processor draws: nobody waits for the
    frames, as for those of an animated picture.
    """

    choice: BackendChoice | None = None
    autoplay: bool = False
    seed: int | None = None
    progress: Progress | None = None
    full_size: bool = False


Build = Callable[["App", PlayOptions], Facts | None]
