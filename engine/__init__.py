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
    from engine.commands.items import WorkerOutput as WorkerOutput
    from engine.compat import IWorker as IWorker
    from engine.compat import WorkerFactory as WorkerFactory
    from engine.costs import StepCost as StepCost
    from engine.costs import StepCosts as StepCosts
    from engine.custom import numpy_operator
    from engine.custom import operator as operator
    from engine.custom import remove_operator as remove_operator
    from engine.devices import CLDevice, GLDevice, SystemInfo
    from engine.errors import CancelledError as CancelledError
    from engine.errors import (
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
        UnsupportedLayerError,
        ValuePending,
    )
    from engine.errors import ThreadError as ThreadError
    from engine.frozen import freeze_support
    from engine.jobs.functions import Job as Job
    from engine.jobs.functions import job
    from engine.jobs.system import JobHandle, JobSystem
    from engine.jobs.system import leave_a_core_to_the_game as leave_a_core_to_the_game
    from engine.loading.handle import Loading
    from engine.loading.handle import advance_loads as advance_loads
    from engine.model import Input as Input
    from engine.model import Layer as Layer
    from engine.model import Model
    from engine.model import Output as Output
    from engine.observing import Observer as Observer
    from engine.report import PlanReport as PlanReport
    from engine.shapes import DynamicTensorShape, TensorShape
    from engine.slices import Schedule as Schedule
    from engine.tensor import CPUTensorData, Tensor
    from engine.tensor import TensorData as TensorData
    from engine.textures import ChannelSwizzle, CoordOrigin, TensorLayout, TextureConverter, TextureTransform
    from engine.unfinished import unfinished_workers as unfinished_workers
    from engine.worker import Worker
    from engine.worker_memory import WorkerMemory as WorkerMemory

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

# The names that games are written with. The others can be imported by name, and are documented with what
# they belong to.
__all__ = [
    "BackendType", "CLDevice", "CPUTensorData", "ChannelSwizzle", "CommandBuffer", "ComputeTensorData",
    "CoordOrigin", "DeviceError", "DisposedError", "DynamicTensorShape", "EngineError", "GLDevice",
    "Graphics", "InputError", "JobHandle", "JobSystem", "KernelCompileError", "Loading", "Model",
    "ModelAsset", "ModelImportError", "ModelLoader", "OutOfMemoryError", "ShapeError", "ShapePending",
    "StaleTensorError", "SystemInfo", "Tensor", "TensorLayout", "TensorShape", "TextureConverter",
    "TextureTensorData", "TextureTransform", "UnsupportedLayerError", "ValuePending", "Worker",
    "freeze_support", "job", "numpy_operator",
]
# fmt: on
