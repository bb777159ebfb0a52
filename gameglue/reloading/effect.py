"""An image effect that is recompiled when its shader's file changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import moderngl

from engine import GLDevice, Loading
from engine.runtime.loading.handle import Steps
from engine.runtime.loading.trial_compile import try_program
from gameglue.errors import GraphicsError
from gameglue.graphics.device import Effect, RenderTarget, Texture
from gameglue.graphics.graphics import Graphics
from gameglue.graphics.shaders import FULLSCREEN_VERTEX, numbered
from gameglue.reloading.reloadable import Reloadable


class ReloadableEffect(Reloadable[Effect]):
    """The effect of the file's latest shader that compiles; made by `app.hot_reload.effect`.

    It is applied like an `Effect`; as long as there is none, applying it copies the image. The shader is
    compiled on another thread first, which finds what is wrong with it.
    """

    def __init__(self, path: Path, graphics: Graphics, on_reload: Callable[[Effect], object] | None) -> None:
        self._graphics = graphics
        super().__init__(path, on_reload)

    @property
    def effect(self) -> Effect:
        """The current effect. Raises `ResourceError` before the first one is loaded."""
        return self.current

    def apply(
        self,
        source: RenderTarget | Texture,
        destination: RenderTarget | moderngl.Framebuffer,
        uniforms: Mapping[str, object] | None = None,
    ) -> None:
        """Write every pixel of `destination` from `source`."""
        if self._current is not None:
            self._current.apply(source, destination, uniforms)
        elif isinstance(source, RenderTarget):
            self._graphics.device.copy(source, destination)

    def _begin(self) -> Loading[str]:
        loading: Loading[str] = Loading(name=self.path.name)

        def steps() -> Steps[str]:
            fragment = self.path.read_text(encoding="utf-8")
            if self._graphics.ctx is not None:
                device = GLDevice.for_context(self._graphics.ctx)
                trial = try_program(device, FULLSCREEN_VERTEX.strip(), fragment.strip())
                while not trial.is_done():
                    yield None
                if complaints := trial.result():
                    raise GraphicsError(f"{complaints}\nin {self.path.name}:\n{numbered(fragment)}")
            return fragment

        return loading.begin(steps())

    def _take(self, made: str, before: Effect | None) -> Effect:
        self._graphics.make_current()
        return self._graphics.effect(made)

    def _drop(self, thing: Effect) -> None:
        self._graphics.make_current()
        thing.release()
