"""`SpriteAnimator`: plays clips of a sprite sheet."""

from __future__ import annotations

import difflib
from math import inf
from typing import Annotated

from gameglue.errors import GraphicsError
from gameglue.graphics.camera import SpriteRenderer
from gameglue.graphics.sprite_sheet import AnimationClip
from gameglue.scripting.behaviour import MonoBehaviour
from gameglue.scripting.events import Event
from gameglue.scripting.fields import Range


class SpriteAnimator(MonoBehaviour):
    """Plays clips: changes the frame of its object's `SpriteRenderer` in game time times `speed`.

    hero.add_component(SpriteRenderer, sheet=SpriteSheet(texture, columns=8, rows=2))
    clips = {"run": AnimationClip(range(8), 12), "jump": AnimationClip([8, 9, 10], loop=False)}
    animator = hero.add_component(SpriteAnimator, clips=clips)
    animator.play("jump")

    """

    required_components = (SpriteRenderer,)

    clips: dict[str, AnimationClip]
    """Clips by name."""
    playing: str | None = None
    """Name of the clip that plays; `None` begins with the first one."""
    speed: Annotated[float, Range(0.0, inf)] = 1.0
    """Multiplies game time."""

    on_finished = Event[[str]]()
    """Emitted when a clip ends, with its name."""

    _seconds: float = 0.0
    _is_over: bool = False

    def start(self) -> None:
        """Show the first frame."""
        self.play(self.playing if self.playing is not None else next(iter(self.clips), ""), restart=True)

    def update(self) -> None:
        """Advance by the frame's time."""
        clip = self.clips.get(self.playing or "")
        if clip is None or self._is_over:
            return
        self._seconds += self.time.delta_time * self.speed
        self._show(clip)
        if not clip.loop and self._seconds >= clip.duration - 1e-9:
            self._is_over = True
            self.on_finished.emit(self.playing or "")

    @property
    def is_finished(self) -> bool:
        """True once a clip that does not loop has ended."""
        return self._is_over

    def play(self, name: str, *, restart: bool = False) -> None:
        """Play a clip from its beginning; the one that is playing continues, unless it is to `restart`.

        Raises:
            GraphicsError: There is no clip of that name.
        """
        if name not in self.clips:
            near = difflib.get_close_matches(name, self.clips, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise GraphicsError(f"no clip {name!r}; {hint}clips: {', '.join(self.clips) or 'none'}")
        if restart or name != self.playing or self._is_over:
            self.playing, self._seconds, self._is_over = name, 0.0, False
            self._show(self.clips[name])

    def stop(self) -> None:
        """Stop at the frame that is shown."""
        self.playing = None

    def _show(self, clip: AnimationClip) -> None:
        renderer = self.get_component(SpriteRenderer)
        if renderer is not None:
            renderer.frame = clip.frame_at(self._seconds)
