"""gameglue: neural networks inside a running game.

The game side lives here (`App`, `MonoBehaviour`, graphics, profiling). Every public name of the inference
engine is here too, so this is the one import a game needs:

    from gameglue import App, BackendType, ModelLoader, MonoBehaviour, Worker
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gameglue._engine_check import check_engine

check_engine()

from engine.lazy import lazy_names  # noqa: E402 - the check comes first

if TYPE_CHECKING:
    from engine import (
        BackendType,
        CancelledError,
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
        Input,
        InputError,
        IWorker,
        Job,
        JobHandle,
        JobSystem,
        KernelCompileError,
        Layer,
        Loading,
        Model,
        ModelAsset,
        ModelImportError,
        ModelLoader,
        Observer,
        OutOfMemoryError,
        Output,
        PlanReport,
        Schedule,
        ShapeError,
        ShapePending,
        StaleTensorError,
        StepCost,
        StepCosts,
        SystemInfo,
        Tensor,
        TensorData,
        TensorLayout,
        TensorShape,
        TextureConverter,
        TextureTensorData,
        TextureTransform,
        ThreadError,
        UnsupportedLayerError,
        ValuePending,
        Worker,
        WorkerFactory,
        WorkerMemory,
        WorkerOutput,
        advance_loads,
        freeze_support,
        job,
        leave_a_core_to_the_game,
        numpy_operator,
        operator,
        remove_operator,
        unfinished_workers,
    )
    from gameglue.app import App, ComponentError
    from gameglue.audio import Audio, AudioClip, AudioListener, AudioSource
    from gameglue.behaviour import MonoBehaviour
    from gameglue.brain import Brain
    from gameglue.choices import (
        ALL_CHOICES,
        BackendChoice,
        Progress,
        default_choice,
        exact_choice,
        open_worker,
    )
    from gameglue.coroutines import (
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
    from gameglue.errors import (
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
    from gameglue.events import Event
    from gameglue.fields import Range
    from gameglue.frame import FRAME, Phase
    from gameglue.game_object import GameObject
    from gameglue.graphics import (
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
    from gameglue.inference import InferenceQueue, InferenceRequest, Pumpable, QueueStats, WorkerShare
    from gameglue.input import (
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
    from gameglue.inspector import Inspector
    from gameglue.learning import DenseNetwork, Evolution
    from gameglue.playing import Facts, PlayOptions
    from gameglue.profiling import FrameReport, Profiler, Recording
    from gameglue.program import play
    from gameglue.reloading import HotReload, WatchedEffect, WatchedWorker
    from gameglue.required import require_component
    from gameglue.resources import Resources
    from gameglue.route import Route
    from gameglue.scene import Scene
    from gameglue.scene_files.prefab import Prefab
    from gameglue.transform import Transform
    from gameglue.vector import Quaternion, Vec3

# fmt: off
_PLACES = {
    "engine": ("BackendType", "CLDevice", "CPUTensorData", "CancelledError", "ChannelSwizzle",
        "CommandBuffer", "ComputeTensorData", "CoordOrigin", "DeviceError", "DisposedError",
        "DynamicTensorShape", "EngineError", "GLDevice", "Graphics", "IWorker", "Input", "InputError",
        "Job", "JobHandle", "JobSystem", "KernelCompileError", "Layer", "Loading", "Model", "ModelAsset",
        "ModelImportError", "ModelLoader", "Observer", "OutOfMemoryError", "Output", "PlanReport",
        "Schedule", "ShapeError", "ShapePending", "StaleTensorError", "StepCost", "StepCosts", "SystemInfo",
        "Tensor", "TensorData", "TensorLayout", "TensorShape", "TextureConverter", "TextureTensorData",
        "TextureTransform", "ThreadError", "UnsupportedLayerError", "ValuePending", "Worker",
        "WorkerFactory", "WorkerMemory", "WorkerOutput", "advance_loads", "freeze_support", "job",
        "leave_a_core_to_the_game", "numpy_operator", "operator", "remove_operator", "unfinished_workers"),
    "gameglue.app": ("App", "ComponentError"),
    "gameglue.audio": ("Audio", "AudioClip", "AudioListener", "AudioSource"),
    "gameglue.behaviour": ("MonoBehaviour",),
    "gameglue.brain": ("Brain",),
    "gameglue.choices": ("ALL_CHOICES", "BackendChoice", "Progress", "default_choice", "exact_choice",
        "open_worker"),
    "gameglue.coroutines": ("Coroutine", "WaitForEndOfFrame", "WaitForFixedUpdate", "WaitForSeconds",
        "WaitForSecondsRealtime", "WaitUntil", "WaitUntilDone", "WaitWhile", "YieldInstruction",
        "next_frame", "seconds"),
    "gameglue.errors": ("FieldError", "FrameError", "GameError", "GraphicsError", "HookError", "MeshError",
        "RequestCancelledError", "RequestExpiredError", "RequestReplacedError", "ResourceError",
        "SceneError", "WebCamError"),
    "gameglue.events": ("Event",),
    "gameglue.fields": ("Range",),
    "gameglue.frame": ("FRAME", "Phase"),
    "gameglue.game_object": ("GameObject",),
    "gameglue.graphics": ("AmbientLight", "AnimationClip", "Camera", "Camera2D", "Camera3D", "Canvas",
        "Color", "DirectionalLight", "Effect", "Gui", "ImageEffect", "LineRenderer", "Mesh", "MeshRenderer",
        "Page", "Palette", "ParticleSystem", "ParticleSystem3D", "Particles", "PictureNetwork", "Rect",
        "RenderTarget", "Renderer", "SpriteAnimator", "SpriteRenderer", "SpriteSheet", "TextRenderer",
        "Texture", "TileMap", "WebCamTexture", "faded"),
    "gameglue.inference": ("InferenceQueue", "InferenceRequest", "Pumpable", "QueueStats", "WorkerShare"),
    "gameglue.input": ("GamepadAxis", "GamepadButton", "GamepadConnected", "GamepadDisconnected",
        "InputActions", "InputRecording", "InputScript", "InputState", "KeyEvent", "LEFT", "MIDDLE",
        "MouseButton", "MouseMoved", "PAD_AXES", "PAD_BUTTONS", "RIGHT"),
    "gameglue.inspector": ("Inspector",),
    "gameglue.learning": ("DenseNetwork", "Evolution"),
    "gameglue.playing": ("Facts", "PlayOptions"),
    "gameglue.profiling": ("FrameReport", "Profiler", "Recording"),
    "gameglue.program": ("play",),
    "gameglue.reloading": ("HotReload", "WatchedEffect", "WatchedWorker"),
    "gameglue.required": ("require_component",),
    "gameglue.resources": ("Resources",),
    "gameglue.route": ("Route",),
    "gameglue.scene": ("Scene",),
    "gameglue.scene_files.prefab": ("Prefab",),
    "gameglue.transform": ("Transform",),
    "gameglue.vector": ("Quaternion", "Vec3"),
}
"""By module, the names that are imported from it when they are first used."""

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _PLACES)

__all__ = [
    "ALL_CHOICES", "AmbientLight", "AnimationClip", "App", "Audio", "AudioClip", "AudioListener",
    "AudioSource", "BackendChoice", "BackendType", "Brain", "CLDevice", "CPUTensorData", "Camera",
    "Camera2D", "Camera3D", "CancelledError", "Canvas", "ChannelSwizzle", "Color", "CommandBuffer",
    "ComponentError", "ComputeTensorData", "CoordOrigin", "Coroutine", "DenseNetwork", "DeviceError",
    "DirectionalLight", "DisposedError", "DynamicTensorShape", "Effect", "EngineError", "Event",
    "Evolution", "FRAME", "Facts", "FieldError", "FrameError", "FrameReport", "GLDevice", "GameError",
    "GameObject", "GamepadAxis", "GamepadButton", "GamepadConnected", "GamepadDisconnected", "Graphics",
    "GraphicsError", "Gui", "HookError", "HotReload", "IWorker", "ImageEffect", "InferenceQueue",
    "InferenceRequest", "Input", "InputActions", "InputError", "InputRecording", "InputScript",
    "InputState", "Inspector", "Job", "JobHandle", "JobSystem", "KernelCompileError", "KeyEvent", "LEFT",
    "Layer", "LineRenderer", "Loading", "MIDDLE", "Mesh", "MeshError", "MeshRenderer", "Model",
    "ModelAsset", "ModelImportError", "ModelLoader", "MonoBehaviour", "MouseButton", "MouseMoved",
    "Observer", "OutOfMemoryError", "Output", "PAD_AXES", "PAD_BUTTONS", "Page", "Palette",
    "ParticleSystem", "ParticleSystem3D", "Particles", "Phase", "PictureNetwork", "PlanReport",
    "PlayOptions", "Prefab", "Profiler", "Progress", "Pumpable", "Quaternion", "QueueStats", "RIGHT",
    "Range", "Recording", "Rect", "RenderTarget", "Renderer", "RequestCancelledError",
    "RequestExpiredError", "RequestReplacedError", "ResourceError", "Resources", "Route", "Scene",
    "SceneError", "Schedule", "ShapeError", "ShapePending", "SpriteAnimator", "SpriteRenderer",
    "SpriteSheet", "StaleTensorError", "StepCost", "StepCosts", "SystemInfo", "Tensor", "TensorData",
    "TensorLayout", "TensorShape", "TextRenderer", "Texture", "TextureConverter", "TextureTensorData",
    "TextureTransform", "ThreadError", "TileMap", "Transform", "UnsupportedLayerError", "ValuePending",
    "Vec3", "WaitForEndOfFrame", "WaitForFixedUpdate", "WaitForSeconds", "WaitForSecondsRealtime",
    "WaitUntil", "WaitUntilDone", "WaitWhile", "WatchedEffect", "WatchedWorker", "WebCamError",
    "WebCamTexture", "Worker", "WorkerFactory", "WorkerMemory", "WorkerOutput", "WorkerShare",
    "YieldInstruction", "advance_loads", "default_choice", "exact_choice", "faded", "freeze_support", "job",
    "leave_a_core_to_the_game", "next_frame", "numpy_operator", "open_worker", "operator", "play",
    "remove_operator", "require_component", "seconds", "unfinished_workers",
]
# fmt: on
