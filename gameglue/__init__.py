"""gameglue: neural networks inside a running game.

The game side lives here (`App`, `MonoBehaviour`, graphics, profiling). The public names of the inference
engine are here too, so this is the one import a game needs:

    from gameglue import App, BackendType, ModelLoader, MonoBehaviour, Worker
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gameglue._engine_check import check_engine

check_engine()

from engine.base.lazy_names import lazy_names  # noqa: E402 - the check comes first

if TYPE_CHECKING:
    from engine import (
        BackendType,
        ChannelSwizzle,
        CLDevice,
        CommandBuffer,
        ComputeTensorData,
        CoordOrigin,
        CPUTensorData,
        DeviceError,
        DisposedError,
        DynamicTensorShape,
        EngineError,
        GLDevice,
        Graphics,
        InputError,
        JobHandle,
        JobSystem,
        KernelCompileError,
        Loading,
        Model,
        ModelAsset,
        ModelImportError,
        ModelLoader,
        OutOfMemoryError,
        ShapeError,
        ShapePending,
        StaleTensorError,
        SystemInfo,
        Tensor,
        TensorLayout,
        TensorShape,
        TextureConverter,
        TextureTensorData,
        TextureTransform,
        UnsupportedLayerError,
        ValuePending,
        Worker,
        freeze_support,
        job,
        numpy_operator,
    )
    from engine import CancelledError as CancelledError
    from engine import Input as Input
    from engine import IWorker as IWorker
    from engine import Job as Job
    from engine import Layer as Layer
    from engine import Observer as Observer
    from engine import Output as Output
    from engine import PlanReport as PlanReport
    from engine import Schedule as Schedule
    from engine import StepCost as StepCost
    from engine import StepCosts as StepCosts
    from engine import TensorData as TensorData
    from engine import ThreadError as ThreadError
    from engine import WorkerFactory as WorkerFactory
    from engine import WorkerMemory as WorkerMemory
    from engine import WorkerOutput as WorkerOutput
    from engine import background_planning as background_planning
    from engine import operator as operator
    from engine import remove_operator as remove_operator
    from gameglue.audio import Audio as Audio
    from gameglue.audio import AudioClip, AudioListener, AudioSource
    from gameglue.errors import (
        FieldError,
        GameError,
        GraphicsError,
        HookError,
        RequestCancelledError,
        RequestExpiredError,
        RequestReplacedError,
        ResourceError,
        SceneError,
        WebCamError,
    )
    from gameglue.errors import FrameError as FrameError
    from gameglue.errors import HookWarning as HookWarning
    from gameglue.errors import MeshError as MeshError
    from gameglue.graphics import (
        AmbientLight,
        AnimationClip,
        Camera,
        Camera2D,
        Camera3D,
        Canvas,
        Color,
        DirectionalLight,
        ImageEffect,
        ImageNetwork,
        LineRenderer,
        Mesh,
        MeshRenderer,
        Page,
        Palette,
        ParticleSystem,
        ParticleSystem3D,
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
        with_alpha,
    )
    from gameglue.graphics import Effect as Effect
    from gameglue.graphics import Gui as Gui
    from gameglue.graphics import Particles as Particles
    from gameglue.host.app import App
    from gameglue.host.component_error import ComponentError as ComponentError
    from gameglue.host.frame import Phase as Phase
    from gameglue.host.play_options import PlayOptions, ReportCallback
    from gameglue.host.program import play
    from gameglue.host.resources import Resources as Resources
    from gameglue.inference import InferenceQueue, InferenceRequest
    from gameglue.inference import QueueStats as QueueStats
    from gameglue.inference import WorkerStats as WorkerStats
    from gameglue.inference.backend_choice import (
        BACKEND_CHOICES,
        BackendChoice,
        default_backend_choice,
        open_worker,
        resolve_backend_choice,
    )
    from gameglue.inference.backend_choice import ProgressCallback as ProgressCallback
    from gameglue.inference.brain import Brain
    from gameglue.input import LEFT, MIDDLE, RIGHT, InputScript
    from gameglue.input import PAD_AXES as PAD_AXES
    from gameglue.input import PAD_BUTTONS as PAD_BUTTONS
    from gameglue.input import GamepadAxis as GamepadAxis
    from gameglue.input import GamepadButton as GamepadButton
    from gameglue.input import GamepadConnected as GamepadConnected
    from gameglue.input import GamepadDisconnected as GamepadDisconnected
    from gameglue.input import InputActions as InputActions
    from gameglue.input import InputRecording as InputRecording
    from gameglue.input import InputState as InputState
    from gameglue.input import KeyEvent as KeyEvent
    from gameglue.input import MouseButton as MouseButton
    from gameglue.input import MouseMoved as MouseMoved
    from gameglue.inspector import Inspector as Inspector
    from gameglue.learning.networks import DenseNetwork, EvolutionStrategy
    from gameglue.profiling import FrameReport as FrameReport
    from gameglue.profiling import Profiler as Profiler
    from gameglue.profiling import ProfileRecording as ProfileRecording
    from gameglue.reloading import HotReload as HotReload
    from gameglue.reloading import ReloadableEffect as ReloadableEffect
    from gameglue.reloading import ReloadableWorker as ReloadableWorker
    from gameglue.scene.files.prefab import Prefab
    from gameglue.scene.game_object import GameObject
    from gameglue.scene.route import Route
    from gameglue.scene.scene import Scene
    from gameglue.scene.transform import Transform
    from gameglue.scene.vector import Quaternion, Vec3
    from gameglue.scripting.behaviour import MonoBehaviour
    from gameglue.scripting.coroutines import (
        Coroutine,
        WaitForEndOfFrame,
        WaitForFixedUpdate,
        WaitForSeconds,
        WaitForSecondsRealtime,
        WaitUntil,
        WaitUntilDone,
        WaitWhile,
        next_frame,
        seconds,
    )
    from gameglue.scripting.coroutines import YieldInstruction as YieldInstruction
    from gameglue.scripting.events import Event
    from gameglue.scripting.fields import Range
    from gameglue.scripting.required import require_component

# fmt: off
_PLACES = {
    "engine": ("BackendType", "CLDevice", "CPUTensorData", "CancelledError", "ChannelSwizzle",
        "CommandBuffer", "ComputeTensorData", "CoordOrigin", "DeviceError", "DisposedError",
        "DynamicTensorShape", "EngineError", "GLDevice", "Graphics", "IWorker", "Input", "InputError", "Job",
        "JobHandle", "JobSystem", "KernelCompileError", "Layer", "Loading", "Model", "ModelAsset",
        "ModelImportError", "ModelLoader", "Observer", "OutOfMemoryError", "Output", "PlanReport", "Schedule",
        "ShapeError", "ShapePending", "StaleTensorError", "StepCost", "StepCosts", "SystemInfo", "Tensor",
        "TensorData", "TensorLayout", "TensorShape", "TextureConverter", "TextureTensorData",
        "TextureTransform", "ThreadError", "UnsupportedLayerError", "ValuePending", "Worker", "WorkerFactory",
        "WorkerMemory", "WorkerOutput", "background_planning", "freeze_support", "job", "numpy_operator",
        "operator", "remove_operator"),
    "gameglue.audio": ("Audio", "AudioClip", "AudioListener", "AudioSource"),
    "gameglue.errors": ("FieldError", "FrameError", "GameError", "GraphicsError", "HookError", "HookWarning",
        "MeshError", "RequestCancelledError", "RequestExpiredError", "RequestReplacedError", "ResourceError",
        "SceneError", "WebCamError"),
    "gameglue.graphics": ("AmbientLight", "AnimationClip", "Camera", "Camera2D", "Camera3D", "Canvas",
        "Color", "DirectionalLight", "Effect", "Gui", "ImageEffect", "LineRenderer", "Mesh", "MeshRenderer",
        "Page", "Palette", "ParticleSystem", "ParticleSystem3D", "Particles", "ImageNetwork", "Rect",
        "RenderTarget", "Renderer", "SpriteAnimator", "SpriteRenderer", "SpriteSheet", "TextRenderer",
        "Texture", "TileMap", "WebCamTexture", "with_alpha"),
    "gameglue.host.app": ("App",),
    "gameglue.host.component_error": ("ComponentError",),
    "gameglue.host.frame": ("Phase",),
    "gameglue.host.play_options": ("ReportCallback", "PlayOptions"),
    "gameglue.host.program": ("play",),
    "gameglue.host.resources": ("Resources",),
    "gameglue.inference": ("InferenceQueue", "InferenceRequest", "QueueStats", "WorkerStats"),
    "gameglue.inference.backend_choice": ("BACKEND_CHOICES", "BackendChoice", "ProgressCallback",
        "default_backend_choice", "open_worker", "resolve_backend_choice"),
    "gameglue.inference.brain": ("Brain",),
    "gameglue.input": ("GamepadAxis", "GamepadButton", "GamepadConnected", "GamepadDisconnected",
        "InputActions", "InputRecording", "InputScript", "InputState", "KeyEvent", "LEFT", "MIDDLE",
        "MouseButton", "MouseMoved", "PAD_AXES", "PAD_BUTTONS", "RIGHT"),
    "gameglue.inspector": ("Inspector",),
    "gameglue.learning.networks": ("DenseNetwork", "EvolutionStrategy"),
    "gameglue.profiling": ("FrameReport", "Profiler", "ProfileRecording"),
    "gameglue.reloading": ("HotReload", "ReloadableEffect", "ReloadableWorker"),
    "gameglue.scene.files.prefab": ("Prefab",),
    "gameglue.scene.game_object": ("GameObject",),
    "gameglue.scene.route": ("Route",),
    "gameglue.scene.scene": ("Scene",),
    "gameglue.scene.transform": ("Transform",),
    "gameglue.scene.vector": ("Quaternion", "Vec3"),
    "gameglue.scripting.behaviour": ("MonoBehaviour",),
    "gameglue.scripting.coroutines": ("Coroutine", "WaitForEndOfFrame", "WaitForFixedUpdate",
        "WaitForSeconds", "WaitForSecondsRealtime", "WaitUntil", "WaitUntilDone", "WaitWhile",
        "YieldInstruction", "next_frame", "seconds"),
    "gameglue.scripting.events": ("Event",),
    "gameglue.scripting.fields": ("Range",),
    "gameglue.scripting.required": ("require_component",),
}
"""By module, the names that are imported from it when they are first used."""

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _PLACES)

# The names that games are written with. The others can be imported by name, and are documented with what
# they belong to.
__all__ = [
    "AmbientLight", "AnimationClip", "App", "AudioClip", "AudioListener", "AudioSource",
    "BACKEND_CHOICES", "BackendChoice", "BackendType", "Brain", "CLDevice", "CPUTensorData", "Camera",
    "Camera2D", "Camera3D", "Canvas", "ChannelSwizzle", "Color", "CommandBuffer", "ComputeTensorData",
    "CoordOrigin", "Coroutine", "DenseNetwork", "DeviceError", "DirectionalLight", "DisposedError",
    "DynamicTensorShape", "EngineError", "Event", "EvolutionStrategy", "FieldError", "GLDevice",
    "GameError", "GameObject", "Graphics", "GraphicsError", "HookError", "ImageEffect", "ImageNetwork",
    "InferenceQueue", "InferenceRequest", "InputError", "InputScript", "JobHandle", "JobSystem",
    "KernelCompileError", "LEFT", "LineRenderer", "Loading", "MIDDLE", "Mesh", "MeshRenderer", "Model",
    "ModelAsset", "ModelImportError", "ModelLoader", "MonoBehaviour", "OutOfMemoryError", "Page",
    "Palette", "ParticleSystem", "ParticleSystem3D", "PlayOptions", "Prefab", "Quaternion", "RIGHT",
    "Range", "Rect", "RenderTarget", "Renderer", "ReportCallback", "RequestCancelledError",
    "RequestExpiredError", "RequestReplacedError", "ResourceError", "Route", "Scene", "SceneError",
    "ShapeError", "ShapePending", "SpriteAnimator", "SpriteRenderer", "SpriteSheet", "StaleTensorError",
    "SystemInfo", "Tensor", "TensorLayout", "TensorShape", "TextRenderer", "Texture", "TextureConverter",
    "TextureTensorData", "TextureTransform", "TileMap", "Transform", "UnsupportedLayerError",
    "ValuePending", "Vec3", "WaitForEndOfFrame", "WaitForFixedUpdate", "WaitForSeconds",
    "WaitForSecondsRealtime", "WaitUntil", "WaitUntilDone", "WaitWhile", "WebCamError", "WebCamTexture",
    "Worker", "default_backend_choice", "freeze_support", "job", "next_frame", "numpy_operator",
    "open_worker", "play", "require_component", "resolve_backend_choice", "seconds", "with_alpha",
]
# fmt: on
