"""Neural network inference for games: load a model, create a worker, schedule it, read results later.

A game imports these names from `gameglue`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.base import source_files as source_files
from engine.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from engine.api.asset import ModelAsset, ModelLoader
    from engine.api.command_buffers.buffer import CommandBuffer, Graphics
    from engine.api.command_buffers.items import WorkerOutput as WorkerOutput
    from engine.api.custom_operators import numpy_operator
    from engine.api.custom_operators import operator as operator
    from engine.api.custom_operators import remove_operator as remove_operator
    from engine.api.freeze_support import freeze_support
    from engine.api.jobs import Job as Job
    from engine.api.jobs import job
    from engine.api.plan_report import PlanReport as PlanReport
    from engine.api.textures import (
        ChannelSwizzle,
        CoordOrigin,
        TensorLayout,
        TextureConverter,
        TextureTransform,
    )
    from engine.api.unity_names import IWorker as IWorker
    from engine.api.unity_names import WorkerFactory as WorkerFactory
    from engine.api.worker import Worker
    from engine.backends.base import BackendType
    from engine.backends.tensor_data import CPUTensorData
    from engine.backends.tensor_data import TensorData as TensorData
    from engine.base.errors import CancelledError as CancelledError
    from engine.base.errors import (
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
    from engine.base.errors import ThreadError as ThreadError
    from engine.base.instrumentation import Observer as Observer
    from engine.base.shapes import DynamicTensorShape, TensorShape
    from engine.device.cl.device import CLDevice
    from engine.device.gl.device import GLDevice
    from engine.device.jobs.system import JobHandle, JobSystem
    from engine.device.jobs.system import reserve_game_core as reserve_game_core
    from engine.device.system_info import SystemInfo
    from engine.graph.model import Input as Input
    from engine.graph.model import Layer as Layer
    from engine.graph.model import Model
    from engine.graph.model import Output as Output
    from engine.runtime.cost_model import StepCost as StepCost
    from engine.runtime.cost_model import StepCosts as StepCosts
    from engine.runtime.device_tensor_data import ComputeTensorData, TextureTensorData
    from engine.runtime.loading.handle import Loading
    from engine.runtime.loading.handle import advance_loads as advance_loads
    from engine.runtime.memory_report import WorkerMemory as WorkerMemory
    from engine.runtime.pending_work import background_planning as background_planning
    from engine.runtime.pending_work import pending_work as pending_work
    from engine.runtime.sliced_schedule import Schedule as Schedule
    from engine.runtime.tensor import Tensor

ENGINE_OF = "gameglue"
"""Lets `gameglue` distinguish this package from a game's own engine.py."""

# fmt: off
_PLACES = {
    "engine.api.asset": ("ModelAsset", "ModelLoader"),
    "engine.api.command_buffers.buffer": ("CommandBuffer", "Graphics"),
    "engine.api.command_buffers.items": ("WorkerOutput",),
    "engine.api.custom_operators": ("numpy_operator", "operator", "remove_operator"),
    "engine.api.freeze_support": ("freeze_support",),
    "engine.api.jobs": ("Job", "job"),
    "engine.api.plan_report": ("PlanReport",),
    "engine.api.textures": ("ChannelSwizzle", "CoordOrigin", "TensorLayout", "TextureConverter",
        "TextureTransform"),
    "engine.api.unity_names": ("IWorker", "WorkerFactory"),
    "engine.api.worker": ("Worker",),
    "engine.backends.base": ("BackendType",),
    "engine.backends.tensor_data": ("CPUTensorData", "TensorData"),
    "engine.base.errors": ("CancelledError", "DeviceError", "DisposedError", "EngineError", "InputError",
        "KernelCompileError", "ModelImportError", "OutOfMemoryError", "ShapeError", "ShapePending",
        "StaleTensorError", "ThreadError", "UnsupportedLayerError", "ValuePending"),
    "engine.base.instrumentation": ("Observer",),
    "engine.base.shapes": ("DynamicTensorShape", "TensorShape"),
    "engine.device.cl.device": ("CLDevice",),
    "engine.device.gl.device": ("GLDevice",),
    "engine.device.jobs.system": ("JobHandle", "JobSystem", "reserve_game_core"),
    "engine.device.system_info": ("SystemInfo",),
    "engine.graph.model": ("Input", "Layer", "Model", "Output"),
    "engine.runtime.cost_model": ("StepCost", "StepCosts"),
    "engine.runtime.device_tensor_data": ("ComputeTensorData", "TextureTensorData"),
    "engine.runtime.loading.handle": ("Loading", "advance_loads"),
    "engine.runtime.memory_report": ("WorkerMemory",),
    "engine.runtime.pending_work": ("background_planning", "pending_work"),
    "engine.runtime.sliced_schedule": ("Schedule",),
    "engine.runtime.tensor": ("Tensor",),
}
"""By module, the names that are imported from it when they are first used."""

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _PLACES)

# The names that most games use. The others can be imported, too, and are documented with the classes they
# belong to.
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
