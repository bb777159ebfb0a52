"""Exceptions of the game side. All derive from `EngineError`, so a game can catch one class."""

from __future__ import annotations

from engine.base.errors import CancelledError, EngineError


class GameError(EngineError):
    """Base class of every exception that the game side raises on purpose.

    Catch it to handle all of them; the message says what to do.
    """


class HookError(GameError, TypeError):
    """A component's hook is spelled or declared so that it would never be called.

    Write it as the message says: `update`, not `Update`, with the parameters of the hook.
    """


class HookWarning(UserWarning):
    """A component has a method whose name resembles a hook's, and which is never called.

    Correct the spelling, or give the method another name.
    """


class FieldError(GameError, TypeError):
    """A component's serialized field is unknown, missing, out of range or of the wrong type.

    The message lists the fields, or the type and range that are expected.
    """


class SceneError(GameError, ValueError):
    """An operation on a scene, prefab or object is invalid, or a scene file is wrong.

    The message names file, line, object, component and field, and what was probably meant.
    """


class ResourceError(GameError, FileNotFoundError):
    """An asset was not found in any of the searched folders.

    The message lists the folders; put the file next to the game's main program, or correct the name.
    """


class GraphicsError(GameError):
    """There is no window or OpenGL context, a shader does not compile, or a drawing call is wrong.

    Run `gameglue doctor` for windows and contexts; for shaders the message has the compiler's lines.
    """


class MeshError(GraphicsError, ValueError):
    """A mesh's arrays do not fit each other, or a mesh file cannot be read.

    Correct the arrays or the file as the message says.
    """


class WebCamError(GameError, OSError):
    """There is no camera, it cannot be opened, or it has stopped.

    Check `WebCamTexture.devices()`, and that no other program uses the camera.
    """


class FrameError(GameError):
    """The frame loop was used wrongly: an unknown phase, another thread, or after `dispose()`.

    Use an app on the thread that created it, and create another one after it has ended.
    """


class RequestCancelledError(GameError, CancelledError):
    """The result of a cancelled request to the `InferenceQueue` was read.

    Look at `request.state` first, or catch the error.
    """


class RequestReplacedError(RequestCancelledError):
    """The result of a request was read that a newer one has replaced (`latest_only`).

    Use the newer request's result, or submit without `latest_only`.
    """


class RequestExpiredError(GameError):
    """The result of a request was read whose deadline passed before it ran.

    Allow a later deadline or a larger budget, or continue without the result.
    """
