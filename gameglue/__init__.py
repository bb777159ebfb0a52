"""gameglue: neural networks inside a running game.

The game side lives here (`App`, `MonoBehaviour`, graphics, profiling). Every public name of the inference
engine is here too, so this is the one import a game needs:

    from gameglue import App, BackendType, ModelLoader, MonoBehaviour, Worker
"""

from gameglue._engine_check import check_engine

check_engine()

from engine import *  # noqa: E402, F403
from engine import __all__ as _engine_names  # noqa: E402
from gameglue.app import App, ComponentError  # noqa: E402
from gameglue.audio import Audio, AudioClip, AudioListener, AudioSource  # noqa: E402
from gameglue.behaviour import MonoBehaviour  # noqa: E402
from gameglue.brain import Brain  # noqa: E402
from gameglue.choices import (  # noqa: E402
    ALL_CHOICES,
    BackendChoice,
    Progress,
    default_choice,
    exact_choice,
    open_worker,
)
from gameglue.coroutines import (  # noqa: E402
    Coroutine,
    WaitForEndOfFrame,
    WaitForFixedUpdate,
    WaitForSeconds,
    WaitForSecondsRealtime,
    WaitUntil,
    WaitUntilDone,
    WaitWhile,
    YieldInstruction,
    next_frame,
    seconds,
)
from gameglue.errors import (  # noqa: E402
    FieldError,
    FrameError,
    GameError,
    GraphicsError,
    HookError,
    MeshError,
    RequestCancelledError,
    RequestExpiredError,
    RequestReplacedError,
    ResourceError,
    SceneError,
    WebCamError,
)
from gameglue.events import Event  # noqa: E402
from gameglue.fields import Range  # noqa: E402
from gameglue.frame import FRAME, Phase  # noqa: E402
from gameglue.game_object import GameObject  # noqa: E402
from gameglue.graphics import (  # noqa: E402
    AmbientLight,
    AnimationClip,
    Camera,
    Camera2D,
    Camera3D,
    Canvas,
    Color,
    DirectionalLight,
    Effect,
    Gui,
    ImageEffect,
    LineRenderer,
    Mesh,
    MeshRenderer,
    Page,
    Palette,
    Particles,
    ParticleSystem,
    ParticleSystem3D,
    PictureNetwork,
    Rect,
    Renderer,
    RenderTarget,
    SpriteAnimator,
    SpriteRenderer,
    SpriteSheet,
    TextRenderer,
    Texture,
    TileMap,
    WebCamTexture,
    faded,
)
from gameglue.inference import (  # noqa: E402
    InferenceQueue,
    InferenceRequest,
    Pumpable,
    QueueStats,
    WorkerShare,
)
from gameglue.input import (  # noqa: E402
    LEFT,
    MIDDLE,
    PAD_AXES,
    PAD_BUTTONS,
    RIGHT,
    GamepadAxis,
    GamepadButton,
    GamepadConnected,
    GamepadDisconnected,
    InputActions,
    InputRecording,
    InputScript,
    InputState,
    KeyEvent,
    MouseButton,
    MouseMoved,
)
from gameglue.inspector import Inspector  # noqa: E402
from gameglue.learning import DenseNetwork, Evolution  # noqa: E402
from gameglue.playing import Facts, PlayOptions  # noqa: E402
from gameglue.profiling import FrameReport, Profiler, Recording  # noqa: E402
from gameglue.program import play  # noqa: E402
from gameglue.reloading import HotReload, WatchedEffect, WatchedWorker  # noqa: E402
from gameglue.required import require_component  # noqa: E402
from gameglue.resources import Resources  # noqa: E402
from gameglue.route import Route  # noqa: E402
from gameglue.scene import Scene  # noqa: E402
from gameglue.scene_files.prefab import Prefab  # noqa: E402
from gameglue.transform import Transform  # noqa: E402
from gameglue.vector import Quaternion, Vec3  # noqa: E402

__all__ = [
    "ALL_CHOICES",
    "AmbientLight",
    "AnimationClip",
    "FRAME",
    "App",
    "Audio",
    "AudioClip",
    "AudioListener",
    "AudioSource",
    "BackendChoice",
    "Brain",
    "Camera",
    "Camera2D",
    "Camera3D",
    "Canvas",
    "Color",
    "ComponentError",
    "Coroutine",
    "DenseNetwork",
    "DirectionalLight",
    "Effect",
    "Event",
    "Evolution",
    "Facts",
    "FieldError",
    "FrameError",
    "FrameReport",
    "GameError",
    "GameObject",
    "GamepadAxis",
    "GamepadButton",
    "GamepadConnected",
    "GamepadDisconnected",
    "GraphicsError",
    "Gui",
    "HookError",
    "HotReload",
    "ImageEffect",
    "InferenceQueue",
    "InferenceRequest",
    "InputActions",
    "InputRecording",
    "InputScript",
    "InputState",
    "Inspector",
    "KeyEvent",
    "LEFT",
    "LineRenderer",
    "MIDDLE",
    "Mesh",
    "MeshError",
    "MeshRenderer",
    "MonoBehaviour",
    "MouseButton",
    "MouseMoved",
    "PAD_AXES",
    "PAD_BUTTONS",
    "Page",
    "Palette",
    "ParticleSystem",
    "ParticleSystem3D",
    "Particles",
    "Phase",
    "PictureNetwork",
    "Prefab",
    "PlayOptions",
    "Profiler",
    "Progress",
    "Pumpable",
    "Quaternion",
    "Recording",
    "QueueStats",
    "RIGHT",
    "Range",
    "Rect",
    "RenderTarget",
    "Renderer",
    "RequestCancelledError",
    "RequestExpiredError",
    "RequestReplacedError",
    "ResourceError",
    "Resources",
    "Route",
    "Scene",
    "SceneError",
    "SpriteAnimator",
    "SpriteRenderer",
    "SpriteSheet",
    "TextRenderer",
    "Texture",
    "TileMap",
    "Transform",
    "Vec3",
    "WaitForEndOfFrame",
    "WaitForFixedUpdate",
    "WaitForSeconds",
    "WaitForSecondsRealtime",
    "WaitUntil",
    "WaitUntilDone",
    "WaitWhile",
    "WatchedEffect",
    "WatchedWorker",
    "WebCamError",
    "WebCamTexture",
    "WorkerShare",
    "YieldInstruction",
    "default_choice",
    "exact_choice",
    "faded",
    "next_frame",
    "open_worker",
    "play",
    "require_component",
    "seconds",
]
__all__ += list(_engine_names)
