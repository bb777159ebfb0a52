"""Exceptions of the game side. All derive from `EngineError`, so a game can catch one class."""

from __future__ import annotations

from engine.errors import CancelledError, EngineError


class GameError(EngineError):
    """Base class of every exception that the game side raises on purpose."""


class HookError(GameError, TypeError):
    """A behaviour spells or shapes a hook in a way that would never be called."""


class HookWarning(UserWarning):
    """A behaviour has a method that looks like a hook and is none: the app never calls it."""


class FieldError(GameError, TypeError):
    """A component's serialized field is unknown, missing or of the wrong type."""


class SceneError(GameError, ValueError):
    """A scene, prefab or object is asked for something it cannot do, or its file says what makes no sense."""


class ResourceError(GameError, FileNotFoundError):
    """An asset was looked up by name and is in none of the places that were searched."""


class GraphicsError(GameError):
    """A window or an OpenGL context was asked for and cannot be had, or a shader does not compile."""


class MeshError(GraphicsError, ValueError):
    """A mesh was made from arrays that do not fit each other, or from a file that cannot be read."""


class WebCamError(GameError, OSError):
    """A `WebCamTexture` has no camera to show, or its camera cannot be opened or has stopped."""


class FrameError(GameError):
    """The frame loop was used wrongly: a phase that does not exist, another thread, after `dispose()`."""


class RequestCancelledError(GameError, CancelledError):
    """The result of a request to the `InferenceQueue` that was cancelled was asked for."""


class RequestReplacedError(RequestCancelledError):
    """The result of a request was asked for whose place a newer one took (`latest_only`)."""


class RequestExpiredError(GameError):
    """The result of a request was asked for whose deadline passed before there was one."""
