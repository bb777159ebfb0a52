"""Neural network inference for games: models in, a worker per model, results that arrive without a wait.

A game imports these names from `gameglue`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine import sources as sources
from engine.lazy import lazy_names

if TYPE_CHECKING:
    from engine.asset import ModelAsset, ModelLoader
    from engine.backends.base import BackendType
    from engine.backends.tensor_data import ComputeTensorData, TextureTensorData
    from engine.commands.buffer import CommandBuffer, Graphics
    from engine.commands.items import WorkerOutput
    from engine.compat import IWorker, WorkerFactory
    from engine.costs import StepCost, StepCosts
    from engine.custom import numpy_operator, operator, remove_operator
    from engine.devices import CLDevice, GLDevice, SystemInfo
    from engine.errors import (
        CancelledError,
        DeviceError,
        DisposedError,
        EngineError,
        InputError,
        KernelCompileError,
        ModelImportError,
        OutOfMemoryError,
        ShapeError,
        ShapePending,
        StaleTensorError,
        ThreadError,
        UnsupportedLayerError,
        ValuePending,
    )
    from engine.frozen import freeze_support
    from engine.jobs.functions import Job, job
    from engine.jobs.system import JobHandle, JobSystem, leave_a_core_to_the_game
    from engine.loading.handle import Loading, advance_loads
    from engine.model import Input, Layer, Model, Output
    from engine.observing import Observer
    from engine.report import PlanReport
    from engine.shapes import DynamicTensorShape, TensorShape
    from engine.slices import Schedule
    from engine.tensor import CPUTensorData, Tensor, TensorData
    from engine.textures import ChannelSwizzle, CoordOrigin, TensorLayout, TextureConverter, TextureTransform
    from engine.unfinished import unfinished_workers
    from engine.worker import Worker
    from engine.worker_memory import WorkerMemory

ENGINE_OF = "gameglue"
"""Tells `gameglue` that this is the engine it means, and not a game's own engine.py."""

# fmt: off
_PLACES = {
    "engine.asset": ("ModelAsset", "ModelLoader"),
    "engine.backends.base": ("BackendType",),
    "engine.backends.tensor_data": ("ComputeTensorData", "TextureTensorData"),
    "engine.commands.buffer": ("CommandBuffer", "Graphics"),
    "engine.commands.items": ("WorkerOutput",),
    "engine.compat": ("IWorker", "WorkerFactory"),
    "engine.costs": ("StepCost", "StepCosts"),
    "engine.custom": ("numpy_operator", "operator", "remove_operator"),
    "engine.devices": ("CLDevice", "GLDevice", "SystemInfo"),
    "engine.errors": ("CancelledError", "DeviceError", "DisposedError", "EngineError", "InputError",
        "KernelCompileError", "ModelImportError", "OutOfMemoryError", "ShapeError", "ShapePending",
        "StaleTensorError", "ThreadError", "UnsupportedLayerError", "ValuePending"),
    "engine.frozen": ("freeze_support",),
    "engine.jobs.functions": ("Job", "job"),
    "engine.jobs.system": ("JobHandle", "JobSystem", "leave_a_core_to_the_game"),
    "engine.loading.handle": ("Loading", "advance_loads"),
    "engine.model": ("Input", "Layer", "Model", "Output"),
    "engine.observing": ("Observer",),
    "engine.report": ("PlanReport",),
    "engine.shapes": ("DynamicTensorShape", "TensorShape"),
    "engine.slices": ("Schedule",),
    "engine.tensor": ("CPUTensorData", "Tensor", "TensorData"),
    "engine.textures": ("ChannelSwizzle", "CoordOrigin", "TensorLayout", "TextureConverter",
        "TextureTransform"),
    "engine.unfinished": ("unfinished_workers",),
    "engine.worker": ("Worker",),
    "engine.worker_memory": ("WorkerMemory",),
}
"""By module, the names that are imported from it when they are first used."""

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _PLACES)

__all__ = [
    "BackendType", "CLDevice", "CPUTensorData", "CancelledError", "ChannelSwizzle", "CommandBuffer",
    "ComputeTensorData", "CoordOrigin", "DeviceError", "DisposedError", "DynamicTensorShape", "EngineError",
    "GLDevice", "Graphics", "IWorker", "Input", "InputError", "Job", "JobHandle", "JobSystem",
    "KernelCompileError", "Layer", "Loading", "Model", "ModelAsset", "ModelImportError", "ModelLoader",
    "Observer", "OutOfMemoryError", "Output", "PlanReport", "Schedule", "ShapeError", "ShapePending",
    "StaleTensorError", "StepCost", "StepCosts", "SystemInfo", "Tensor", "TensorData", "TensorLayout",
    "TensorShape", "TextureConverter", "TextureTensorData", "TextureTransform", "ThreadError",
    "UnsupportedLayerError", "ValuePending", "Worker", "WorkerFactory", "WorkerMemory", "WorkerOutput",
    "advance_loads", "freeze_support", "job", "leave_a_core_to_the_game", "numpy_operator", "operator",
    "remove_operator", "unfinished_workers",
]
# fmt: on
