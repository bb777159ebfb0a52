"""ONNX's backend interface (`onnx.backend.base.Backend`), implemented by this engine.

`engine.api.onnx_backend` is such a backend as a module: `prepare(model, "GPU_COMPUTE").run([x])`,
`run_model`, `run_node`. ONNX's own test runner takes the class: `BackendTest(EngineBackend, __name__)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TypeProto, ValueInfoProto, defs, helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from engine.api.asset import ModelLoader, ModelSource
from engine.api.worker import Worker
from engine.backends.base import BackendType
from engine.backends.select import DeviceChoice
from engine.base.errors import DeviceError, InputError, ModelImportError
from engine.base.lifetime import Disposable
from engine.device.system_info import SystemInfo

DEVICES: dict[str, tuple[BackendType, DeviceChoice]] = {
    "CPU": (BackendType.CPU, None),
    "GPU_COMPUTE": (BackendType.GPU_COMPUTE, None),
    "GPU": (BackendType.GPU_COMPUTE, None),
    "CUDA": (BackendType.GPU_COMPUTE, None),
    "OPENCL": (BackendType.GPU_COMPUTE, "opencl"),
    "GPU_PIXEL": (BackendType.GPU_PIXEL, None),
}
"""Device names, and the worker's arguments for them. Tools ask for "CUDA" where they mean any GPU."""


class EngineBackendRep(BackendRep, Disposable):
    """A model that is ready to run: a `Worker` behind ONNX's interface."""

    def __init__(self, worker: Worker) -> None:
        super().__init__()
        self.worker = worker

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """Run one inference and wait: the outputs in order, each also accessible by name.

        `inputs` is a list in the model's order, a dict by name, or one array for a model of one input.
        Sequences are lists of arrays, an empty optional is None.

        Raises:
            InputError: An input is missing or does not fit.
        """
        self._check_alive()
        self.worker.schedule(_by_name([item.name for item in self.worker.model.inputs], inputs))
        found = self.worker.take_outputs()
        outputs: tuple[Any, ...] = namedtupledict("Outputs", [*found])(*found.values())
        return outputs

    def _dispose(self) -> None:
        self.worker.dispose()


class EngineBackend(Backend):
    """Runs ONNX models and single nodes; options of other backends among the keywords are ignored."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether the engine has every operator of `model`, and this machine the device."""
        return cls.is_opset_supported(model)[0] and cls.supports_device(device)

    @classmethod
    def is_opset_supported(cls, model: ModelProto) -> tuple[bool, str]:
        """Whether every operator of `model` can run under its opset version; else what is in the way."""
        try:
            ModelLoader.read(model.SerializeToString())
        except ModelImportError as error:
            return False, str(error)
        return True, ""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether `device` is the name of one that this machine has."""
        try:
            backend_type, kind = choose_device(device)
        except DeviceError:
            return False
        info = SystemInfo.query()
        if backend_type is BackendType.CPU:
            return True
        if backend_type is BackendType.GPU_PIXEL:
            return info.gl is not None
        has_compute = info.gl is not None and info.gl.supports_compute
        return bool(info.cl_devices) or (has_compute and kind is None)

    @classmethod
    def prepare(
        cls,
        model: ModelProto | ModelSource,
        device: str = "CPU",
        *,
        allow_fallback: bool = True,
        debug: bool = False,
        **kwargs: Any,
    ) -> EngineBackendRep:
        """Compile a model, given as a proto, bytes or a path, for a device (a name of `DEVICES`).

        `allow_fallback` and `debug` are those of `Worker`.

        Raises:
            ModelImportError: The model cannot be read.
            DeviceError: There is no such device.
            UnsupportedLayerError: A layer cannot run on it.
        """
        backend_type, kind = choose_device(device)
        source = model.SerializeToString() if isinstance(model, ModelProto) else model
        loaded = ModelLoader.load(source)
        worker = Worker(loaded, backend_type, device=kind, allow_fallback=allow_fallback, debug=debug)
        return EngineBackendRep(worker)

    @classmethod
    def run_model(
        cls, model: ModelProto | ModelSource, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Prepare a model, run it once and dispose it."""
        with cls.prepare(model, device, **kwargs) as prepared:
            return prepared.run(inputs)

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one operator once, under `opset_version=` of its domain (by default the newest known).

        `outputs_info` lists (element type, shape) of the outputs; the engine works them out by itself.
        """
        given = _by_name([name for name in node.input if name], inputs)
        versions = {"": _newest(""), node.domain: _newest(node.domain)}
        if (version := kwargs.pop("opset_version", None)) is not None:
            versions[node.domain] = version
        graph = helper.make_graph(
            [node],
            node.name or node.op_type,
            [helper.make_value_info(name, declared_input(value)) for name, value in given.items()],
            [ValueInfoProto(name=name) for name in node.output if name],
        )
        opsets = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
        model = helper.make_model(graph, opset_imports=opsets)
        return cls.run_model(model, given, device, **kwargs)


def choose_device(name: str) -> tuple[BackendType, DeviceChoice]:
    """The worker's arguments for a device's name, with or without ":0". Raises `DeviceError`."""
    kind, _, number = name.partition(":")
    if kind not in DEVICES:
        raise DeviceError(f"there is no device {name!r}; the names are {', '.join(DEVICES)}")
    if number not in ("", "0"):
        raise DeviceError(f"device {name!r} asks for number {number}; one device of each kind is used: 0")
    return DEVICES[kind]


def declared_input(value: Any) -> TypeProto:
    """The declared type of an input, from a value of it. Raises `InputError` for one without a type."""
    if isinstance(value, list | tuple):
        if not value:
            raise InputError("the element type of an empty sequence is unknown; use prepare with a model")
        return helper.make_sequence_type_proto(declared_input(value[0]))
    if value is None:
        raise InputError("the type of an empty optional is unknown; use prepare with a model")
    array = np.asarray(value)
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def _by_name(names: Sequence[str], inputs: Any) -> dict[str, Any]:
    """Inputs as a dict; a list must have one value for each name."""
    if isinstance(inputs, Mapping):
        return dict(inputs)
    values = list(inputs) if isinstance(inputs, Iterable) and not isinstance(inputs, np.ndarray) else [inputs]
    if len(values) != len(names):
        raise InputError(f"got {len(values)} input(s) for {len(names)}: {', '.join(names) or 'none'}")
    return dict(zip(names, values, strict=True))


def _newest(domain: str) -> int:
    """The newest version of a domain that the installed `onnx` knows; 1 for domains that are not ONNX's."""
    versions = [s.since_version for s in defs.get_all_schemas_with_history() if s.domain == domain]
    return defs.onnx_opset_version() if domain in ("", "ai.onnx") else max(versions, default=1)


is_compatible = EngineBackend.is_compatible
is_opset_supported = EngineBackend.is_opset_supported
prepare = EngineBackend.prepare
run_model = EngineBackend.run_model
run_node = EngineBackend.run_node
supports_device = EngineBackend.supports_device
