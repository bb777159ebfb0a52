"""The ONNX importer: opset 7 to the newest of the installed `onnx` package, older ones if unchanged.

Functions that a model defines are inlined while reading, so that every layer is an operator's. Each layer
keeps the opset version that it was written for, a function's own included.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from google.protobuf.message import DecodeError
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    defs,
    helper,
)

from engine.base.errors import ModelImportError
from engine.base.shapes import Dim, DynamicTensorShape
from engine.graph.importers.constants import Array, frozen
from engine.graph.importers.files import explain_foreign, read_file
from engine.graph.importers.onnx_tensors import WeightFolder, numpy_dtype, read_sparse_tensor, read_tensor
from engine.graph.importers.onnx_weights import without_weights
from engine.graph.importers.support import Supported, check_supported
from engine.graph.model import ML, UNTYPED, Input, Kind, Layer, Model, Output, sort_layers

OLDEST_OPSET = 7

# Functions may call functions, so a small file can ask for any number of layers. The largest exported
# networks known have some ten thousand.
_MAX_LAYERS = 500_000
# Python's own stack bounds how deep subgraphs and functions may nest.
_MAX_DEPTH = 50


def read_onnx(
    source: bytes | str | os.PathLike[str],
    folder: Path | None = None,
    name: str = "<bytes>",
    supported: Supported | None = None,
) -> Model:
    """The model in an ONNX file.

    `source` is the file's path or its bytes; `folder` is where weight files lie, by default the file's own
    folder; `name` is what messages call a model given as bytes. `supported` says which operators the engine
    has. Raises `ModelImportError`: no such file, no ONNX model, an opset too old or too new, a broken graph,
    unsafe or damaged weights, or operators that are not supported, all of them listed.
    """
    if not isinstance(source, bytes):
        path = Path(source)
        folder = path.parent if folder is None else folder
        name = str(path)
        source = read_file(path)
    rest, weights = without_weights(source)
    reader = _Reader(name, folder, _parse(rest, name), weights)
    try:
        model = reader.read()
    except RecursionError:
        raise ModelImportError(f"{name}: subgraphs or functions are nested too deep") from None
    if supported is not None:
        check_supported(model, supported)
    return model


def _parse(data: bytes, name: str) -> ModelProto:
    proto = ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise ModelImportError(f"{name} is not an ONNX model: {explain_foreign(data)}") from error
    if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
        raise ModelImportError(f"{name} is not an ONNX model: {explain_foreign(data)}")
    return proto


def _opset_versions(proto: ModelProto | FunctionProto, subject: str) -> dict[str, int]:
    """The version of each domain ('' is ONNX's own); raises for unsupported versions."""
    versions: dict[str, int] = {}
    for entry in proto.opset_import:
        domain = _domain(entry.domain, subject)
        if versions.setdefault(domain, entry.version) != entry.version:
            raise ModelImportError(f"{subject} names two versions of the opset '{domain or 'ai.onnx'}'")
    newest = defs.onnx_opset_version()
    version = versions.get("")
    if version is not None and version > newest:
        raise ModelImportError(
            f"{subject} uses opset {version}, and the engine reads {OLDEST_OPSET} to {newest}, the newest "
            f"that the installed onnx package knows; update onnx, or export the model for opset {newest}"
        )
    newest_ml = helper.VERSION_TABLE[-1][3]
    if (version := versions.get(ML, 0)) > newest_ml:
        raise ModelImportError(
            f"{subject} uses version {version} of the opset '{ML}', and the engine reads 1 to {newest_ml}, "
            f"the newest that the installed onnx package knows; update onnx, or export for an older one"
        )
    return versions


def _readable_version(op_type: str, version: int, subject: str) -> int:
    """The version of ONNX's opset under which a layer is read: at least the oldest that the engine knows.

    Older files are read where the operator has not changed since; raises `ModelImportError` where it has.
    """
    if version >= OLDEST_OPSET:
        return version
    try:
        changed = defs.get_schema(op_type, OLDEST_OPSET).since_version > version
    except defs.SchemaError:
        changed = True
    if changed:
        raise ModelImportError(
            f"{subject} is of opset {version}, and the engine reads {OLDEST_OPSET} to "
            f"{defs.onnx_opset_version()} (older ones where an operator has not changed since); export the "
            "model again, or convert it with onnx.version_converter.convert_version(model, 13)"
        )
    return OLDEST_OPSET


@dataclass(frozen=True, slots=True)
class _Scope:
    """How names and attributes read in one place: the main graph, or one call of a function."""

    opsets: Mapping[str, int]
    where: str
    prefix: str = ""
    bound: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, Any] | None = None
    depth: int = 0

    def inner(self) -> _Scope:
        """How names are read in a subgraph held by a layer of this place."""
        return replace(self, depth=self.depth + 1)

    def value(self, name: str) -> str:
        """A value's name in the whole model: a function's formal names become the caller's."""
        name = _text(name, self.where)
        if not name:
            return ""
        return self.bound.get(name, self.prefix + name)


class _Reader:
    """Turns one `ModelProto` into a `Model`."""

    def __init__(
        self, name: str, folder: Path | None, proto: ModelProto, weights: Mapping[int, memoryview]
    ) -> None:
        """`weights` are the elements of the main graph's constants that `proto` lacks, by their position."""
        self.name = name
        self.weights = weights
        self.folder = WeightFolder(folder)
        self.proto = proto
        self.layer_names: set[str] = set()
        self.layer_count = 0
        self.functions: dict[tuple[str, str, str], FunctionProto] = {}
        for function in proto.functions:
            key = (_domain(function.domain, name), _text(function.name, name), _text(function.overload, name))
            if key in self.functions:
                raise ModelImportError(f"{name} defines the function '{function.name}' twice")
            self.functions[key] = function

    def read(self) -> Model:
        """The whole model, checked."""
        proto = self.proto
        opsets = _opset_versions(proto, self.name)
        if not opsets:
            raise ModelImportError(
                f"{self.name} does not say which opset it uses: it is damaged, cut short or very old"
            )
        model = self.graph(proto.graph, _Scope(opsets, self.name), self.weights)
        for item in model.inputs:
            if item.dtype == UNTYPED:
                raise ModelImportError(f"{self.name}: the input '{item.name}' has no declared type")
        producer = (_text(proto.producer_name, self.name), _text(proto.producer_version, self.name))
        model = model.replace(
            name=model.name or Path(self.name).stem,
            opsets=opsets,
            producer=" ".join(producer).strip(),
            metadata={_text(e.key, self.name): _text(e.value, self.name) for e in proto.metadata_props},
            has_weight_files=self.folder.is_used,
        )
        model.check()
        return model

    def graph(
        self, graph: GraphProto, scope: _Scope, weights: Mapping[int, memoryview] | None = None
    ) -> Model:
        """A graph, or a subgraph held by a layer; the latter is not checked yet."""
        if scope.depth > _MAX_DEPTH:
            raise ModelImportError(f"{self.name}: subgraphs or functions are nested too deep")
        constants: dict[str, Array] = {}
        for position, tensor in enumerate(graph.initializer):
            name = scope.value(tensor.name)
            raw = None if weights is None else weights.get(position)
            value = read_tensor(tensor, self.folder, f"{scope.where}: constant '{name}'", raw)
            self._define(constants, name, value)
        for sparse in graph.sparse_initializer:
            name = scope.value(sparse.values.name)
            value = read_sparse_tensor(sparse, self.folder, f"{scope.where}: constant '{name}'")
            self._define(constants, name, value)
        # Old files list every constant among the inputs too, as its default value.
        inputs = tuple(
            item for info in graph.input if (item := self._input(info, scope)).name not in constants
        )
        layers = self.layers(graph.node, scope, constants)
        outputs = tuple(self._output(info, scope) for info in graph.output)
        return Model(
            name=_text(graph.name, scope.where),
            inputs=inputs,
            outputs=outputs,
            layers=sort_layers(layers, (*(item.name for item in inputs), *constants)),
            constants=constants,
            opsets=scope.opsets,
            source=self.name,
        )

    def layers(self, nodes: Sequence[NodeProto], scope: _Scope, constants: dict[str, Array]) -> list[Layer]:
        """The nodes as layers; `Constant` nodes go to `constants`, calls of functions become their bodies."""
        found: list[Layer] = []
        for node in nodes:
            self.layer_count += 1
            if self.layer_count > _MAX_LAYERS:
                raise ModelImportError(
                    f"{self.name} has more than {_MAX_LAYERS} layers once its functions are inlined"
                )
            op_type = _text(node.op_type, scope.where)
            domain = _domain(node.domain, scope.where)
            function = self.functions.get((domain, op_type, _text(node.overload, scope.where)))
            name = self._unique_name(_text(node.name, scope.where), op_type, scope)
            subject = f"{scope.where}: layer '{name}' ({op_type})"
            if not op_type:
                raise ModelImportError(f"{subject} names no operator")
            version = scope.opsets.get(domain)
            if version is None and function is None:
                raise ModelImportError(
                    f"{subject}: the model uses the operator domain '{domain or 'ai.onnx'}' without saying "
                    f"which version of it; it is damaged or was put together by hand"
                )
            if not domain and version is not None and function is None:
                version = _readable_version(op_type, version, subject)
            attributes = self._attributes(node.attribute, scope, subject)
            inputs = tuple(scope.value(value) for value in node.input)
            outputs = tuple(scope.value(value) for value in node.output)
            if function is not None:
                found += self._inline(function, inputs, outputs, attributes, scope, name, constants)
            elif op_type == "Constant" and domain == "":
                if len(outputs) != 1 or not outputs[0]:
                    raise ModelImportError(f"{subject} has {len(outputs)} named outputs, expected 1")
                self._define(constants, outputs[0], _constant_value(attributes, subject))
            else:
                names = (_trimmed(inputs), _trimmed(outputs))
                found.append(Layer(op_type, name, *names, attributes, domain, cast(int, version)))
        return found

    def _inline(
        self,
        function: FunctionProto,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        attributes: Mapping[str, Any],
        scope: _Scope,
        name: str,
        constants: dict[str, Array],
    ) -> list[Layer]:
        """The body of one call of a function, its values named after the call."""
        where = f"{self.name}: function '{_text(function.name, self.name)}'"
        if scope.depth >= _MAX_DEPTH:
            raise ModelImportError(f"{where} calls itself, or functions are nested too deep")
        formal_inputs = [_text(value, where) for value in function.input]
        formal_outputs = [_text(value, where) for value in function.output]
        if len(inputs) > len(formal_inputs) or len(outputs) > len(formal_outputs):
            raise ModelImportError(
                f"{where} has {len(formal_inputs)} inputs and {len(formal_outputs)} outputs, and layer "
                f"'{name}' gives it {len(inputs)} and {len(outputs)}"
            )
        bound = dict.fromkeys(formal_inputs, "")
        bound.update(zip(formal_inputs, inputs, strict=False))
        passed_through: list[Layer] = []
        opsets = _opset_versions(function, where) or scope.opsets
        for formal, actual in zip(formal_outputs, outputs, strict=False):
            if formal in formal_inputs:
                if actual:
                    version = opsets.get("", OLDEST_OPSET)
                    copy = self._unique_name(f"{name}/{formal}", "Identity", scope)
                    identity = Layer("Identity", copy, (bound[formal],), (actual,), version=version)
                    passed_through.append(identity)
            elif actual:
                bound[formal] = actual
        inner = _Scope(
            opsets=opsets,
            where=where,
            prefix=f"{name}::",
            bound=bound,
            attributes=self._call_attributes(function, attributes, where),
            depth=scope.depth + 1,
        )
        return self.layers(function.node, inner, constants) + passed_through

    def _call_attributes(
        self, function: FunctionProto, given: Mapping[str, Any], where: str
    ) -> Mapping[str, Any]:
        """The values of a function's attribute references: those of the call, else the defaults."""
        defaults = self._attributes(function.attribute_proto, _Scope({}, where), where)
        return {**defaults, **given}

    def _attributes(self, protos: Sequence[AttributeProto], scope: _Scope, subject: str) -> dict[str, Any]:
        """Attributes as Python values; a reference to one that the call does not give is left out."""
        found: dict[str, Any] = {}
        for proto in protos:
            name = _text(proto.name, subject)
            if name in found:
                raise ModelImportError(f"{subject} gives its attribute '{name}' twice")
            reference = _text(proto.ref_attr_name, subject)
            if reference:
                if scope.attributes is None:
                    raise ModelImportError(f"{subject}: attribute '{name}' is a reference outside a function")
                if reference in scope.attributes:
                    found[name] = scope.attributes[reference]
            else:
                found[name] = self._attribute(proto, scope, f"{subject}: attribute '{name}'")
        return found

    def _attribute(self, proto: AttributeProto, scope: _Scope, subject: str) -> Any:
        """One attribute's value: number, str, bytes, array, `Model`, declared type, or a tuple of these."""

        def read(value: Any) -> Any:
            match value:
                case list():
                    return tuple(map(read, value))
                case bytes():
                    return _string(value)
                case TensorProto():
                    return read_tensor(value, self.folder, subject)
                case SparseTensorProto():
                    return read_sparse_tensor(value, self.folder, subject)
                case GraphProto():
                    return self.graph(value, scope.inner())
                case TypeProto():
                    return Output("", *_declared(value, subject))
            return value

        if proto.type == AttributeProto.UNDEFINED:
            raise ModelImportError(f"{subject} has no type, or one that is unknown")
        return read(helper.get_attribute_value(proto))

    def _input(self, info: ValueInfoProto, scope: _Scope) -> Input:
        name = scope.value(info.name)
        dtype, shape, kind = _declared(info.type, f"{scope.where}: the input '{name}'")
        return Input(name, UNTYPED if dtype is None else dtype, shape, kind)

    def _output(self, info: ValueInfoProto, scope: _Scope) -> Output:
        name = scope.value(info.name)
        return Output(name, *_declared(info.type, f"{scope.where}: the output '{name}'"))

    def _define(self, constants: dict[str, Array], name: str, value: Array) -> None:
        if not name:
            raise ModelImportError(f"{self.name}: a constant has no name")
        if name in constants:
            raise ModelImportError(f"{self.name}: the constant '{name}' is defined twice")
        constants[name] = value

    def _unique_name(self, given: str, op_type: str, scope: _Scope) -> str:
        """A name that no other layer of the model has, subgraphs and functions included."""
        base = scope.prefix + (given or f"{op_type}_{self.layer_count}")
        name, number = base, 2
        while name in self.layer_names:
            name, number = f"{base}_{number}", number + 1
        self.layer_names.add(name)
        return name


def _declared(proto: TypeProto, subject: str) -> tuple[np.dtype[Any] | None, DynamicTensorShape | None, Kind]:
    """Element type, shape and kind of a declared type; None for undeclared parts."""
    which = proto.WhichOneof("value")
    if which is None:
        return None, None, "tensor"
    if which in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(proto, which)
        kind: Kind = "tensor" if which == "tensor_type" else "sparse_tensor"
        dtype = numpy_dtype(tensor.elem_type, subject) if tensor.elem_type else None
        if not tensor.HasField("shape"):
            return dtype, None, kind
        dims: list[Dim] = []
        for dim in tensor.shape.dim:
            if dim.HasField("dim_value") and dim.dim_value >= 0:  # some exporters write -1 for "unknown"
                dims.append(dim.dim_value)
            else:
                name = _text(dim.dim_param, subject)
                # PaddlePaddle's converter calls every unknown size "?"; two of them need not be equal.
                dims.append(None if name in ("", "?") else name)
        return dtype, DynamicTensorShape(dims), kind
    if which in ("sequence_type", "optional_type"):
        dtype, shape, element = _declared(getattr(proto, which).elem_type, subject)
        if element == "map":
            return dtype, shape, "maps"
        return dtype, shape, "sequence" if which == "sequence_type" else "optional"
    if which == "map_type":
        dtype, shape, _ = _declared(proto.map_type.value_type, subject)
        return dtype, shape, "map"
    raise ModelImportError(f"{subject} has a type of the kind '{which}', which the engine does not know")


_CONSTANT_FORMS: dict[str, tuple[Any, Any]] = {
    "value_float": (float, np.float32),
    "value_int": (int, np.int64),
    "value_string": ((str, bytes), object),
}
"""Attributes of a `Constant` node and, with an "s", of lists: the types of items, and of the array."""


def _constant_value(attributes: Mapping[str, Any], subject: str) -> Array:
    """The value of a `Constant` node, in whichever of its forms it is given."""
    if len(attributes) != 1:
        raise ModelImportError(f"{subject} has {len(attributes)} attributes, expected exactly 1 value")
    [(form, value)] = attributes.items()
    if form in ("value", "sparse_value") and isinstance(value, np.ndarray):
        return value
    items = value if form.endswith("s") else (value,)
    types = _CONSTANT_FORMS.get(form.removesuffix("s"))
    if types is not None and isinstance(items, tuple) and all(isinstance(x, types[0]) for x in items):
        return frozen(np.array(value, types[1]))
    raise ModelImportError(f"{subject} has the attribute '{form}', which gives no value of that form")


def _text(value: str | bytes, subject: str) -> str:
    """A protobuf string; protobuf returns bytes for invalid UTF-8."""
    if isinstance(value, bytes):
        raise ModelImportError(f"{subject}: the name {value!r} is not valid text; the file is damaged")
    return value


def _domain(value: str | bytes, subject: str) -> str:
    """An operator domain; ONNX's own has two spellings, of which '' is used here."""
    domain = _text(value, subject)
    return "" if domain == "ai.onnx" else domain


def _string(value: bytes) -> str | bytes:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value


def _trimmed(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names without those left out at the end."""
    end = len(names)
    while end and not names[end - 1]:
        end -= 1
    return names[:end]
