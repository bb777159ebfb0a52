"""Models on the command line: finding the file, `--dim`, and inputs from files or at random."""

from __future__ import annotations

import argparse
import difflib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine import Input, Model, ModelLoader
from engine.base.errors import InputError
from gameglue.host.resources import packaged_assets


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add MODEL and `--dim`."""
    parser.add_argument(
        "model", metavar="MODEL", help="an .onnx file, or the name of a bundled model: digits"
    )
    add_dim_option(parser, "1")


def add_dim_option(parser: argparse.ArgumentParser, default: str) -> None:
    """Add `--dim`; `default` is the help text for dimensions that are not given."""
    parser.add_argument(
        "--dim",
        action="append",
        default=[],
        metavar="NAME=SIZE",
        help=f"size of a named dimension, such as batch=1; may be given several times. Default: {default}",
    )


def add_input_options(parser: argparse.ArgumentParser) -> None:
    """Add `--input` and `--seed`."""
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="read an input from a .npy file or, without NAME=, all inputs from a .npz file; may be given "
        "several times; NAME=FILE.npz gives a sequence. The arrays also set named dimensions that "
        "--dim does not. Other inputs are random",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="S", help="seed of the random inputs. Default: 0"
    )


def find_model(name: str) -> Path:
    """The file that MODEL means: a path, or one of gameglue's models; `InputError` has likely names."""
    path = Path(name)
    if path.exists():
        return path
    own = _packaged_models()
    if name in own:
        return own[name]
    nearby = [str(p) for p in sorted(path.parent.glob("*.onnx"))] if path.parent.is_dir() else []
    likely = difflib.get_close_matches(name, [*nearby, *own], n=3) or nearby[:3]
    hint = f"did you mean {' or '.join(likely)}? " if likely else ""
    raise InputError(f"there is no model {name!r}; {hint}bundled models: {', '.join(own) or 'none'}")


def load_model(arguments: argparse.Namespace) -> tuple[Path, Model]:
    """MODEL's file, and the model with a size for each named dimension. Raises `InputError`."""
    path = find_model(arguments.model)
    named = ModelLoader.load(path, dims=dims_of(arguments))
    return path, named.with_dims(dims_of(arguments, named))


def dims_of(arguments: argparse.Namespace, model: Model | None = None) -> dict[str, int]:
    """Parse `--dim`; with a model, other named dimensions are taken from `--input`, or 1.

    Raises `InputError`.
    """
    dims: dict[str, int] = {}
    if model is not None:
        # The elements of a sequence may differ in size.
        shapes = [item.shape for item in model.inputs if item.kind == "tensor" and item.shape is not None]
        dims = {name: 1 for shape in shapes for name in shape.names} | _dims_of_files(model, arguments)
    for text in arguments.dim:
        name, _, size = text.rpartition("=")
        if not name or not size.isdecimal():
            raise InputError(f"--dim is written as NAME=SIZE, such as batch=1, not {text!r}")
        dims[name] = int(size)
    return dims


def _dims_of_files(model: Model, arguments: argparse.Namespace) -> dict[str, int]:
    """The named dimensions, from the shapes of the arrays of `--input`."""
    given = _load_inputs(model.inputs, getattr(arguments, "input", []))
    arrays = [
        (item.shape, given[item.name])
        for item in model.inputs
        if item.kind == "tensor" and item.shape is not None and item.name in given
    ]
    return {
        dim: size
        for shape, array in arrays
        if len(shape) == array.ndim
        for dim, size in zip(shape, array.shape, strict=True)
        if isinstance(dim, str) and size
    }


def make_inputs(model: Model, arguments: argparse.Namespace) -> dict[str, Any]:
    """Every input of `model`: from `--input`, or random (optionals: none). Raises `InputError`."""
    given = _load_inputs(model.inputs, arguments.input)
    rng = np.random.default_rng(arguments.seed)
    made: dict[str, Any] = {}
    for item in model.inputs:
        # Drawn for given inputs too: the others then do not change with what is given.
        if item.name not in given or can_be_random(item):
            made[item.name] = random_input(item, rng, {})
        if item.name in given:
            made[item.name] = given[item.name]
    return made


def can_be_random(item: Input) -> bool:
    """Whether an input holds numbers in a known number of dimensions, or may be left empty."""
    return item.kind == "optional" or (item.shape is not None and item.dtype.kind in "fiubV")


def random_input(item: Input, rng: np.random.Generator, dims: Mapping[str, int]) -> Any:
    """Normal numbers, or 0 and 1 for integers and truth values; unknown sizes are 1. Raises `InputError`.

    A sequence has two elements, an optional none.
    """
    if item.kind == "optional":
        return None
    if item.kind == "sequence":
        element = item.replace(kind="tensor")
        return [random_input(element, rng, dims) for _ in range(2)]
    if not can_be_random(item) or item.shape is None:
        raise InputError(
            f"input '{item.name}' cannot be generated at random; give it with --input {item.name}=FILE.npy"
        )
    shape = [dim if isinstance(dim, int) else dims.get(dim or "", 1) for dim in item.shape]
    if item.dtype.kind in "iub":
        return rng.integers(0, 2, shape).astype(item.dtype)
    return rng.standard_normal(shape).astype(item.dtype)


def _load_inputs(inputs: Sequence[Input], texts: Sequence[str]) -> dict[str, Any]:
    names = [item.name for item in inputs]
    sequences = [item.name for item in inputs if item.kind == "sequence"]
    found: dict[str, Any] = {}
    for text in texts:
        name, _, file = text.partition("=")
        if text.endswith(".npz") and not file:
            archive = _load_archive(text)
            for name in archive:
                _check_name(name, names)
            found |= archive
        elif name and file:
            _check_name(name, names)
            is_sequence = name in sequences
            found[name] = [*_load_archive(file).values()] if is_sequence else _load_array(name, file)
        else:
            raise InputError(f"--input is written as NAME=FILE.npy or FILE.npz, not {text!r}")
    return found


def _check_name(name: str, names: Sequence[str]) -> None:
    if name not in names:
        raise InputError(f"the model has no input {name!r}; its inputs: {', '.join(names)}")


def _load_array(name: str, file: str) -> np.ndarray:
    """The array in a .npy file."""
    try:
        array = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"cannot read {file} for input '{name}' as a .npy file: {error}") from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"{file} holds several arrays; save one with numpy.save")
    return _as_input(array)


def _as_input(array: np.ndarray) -> np.ndarray:
    """An array of a file as a model takes it: texts, which files keep at a fixed length, as objects."""
    return array.astype(object) if array.dtype.kind == "U" else array


def _load_archive(file: str) -> dict[str, np.ndarray]:
    """Every array of a .npz file, by name."""
    try:
        archive = np.load(file, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ValueError("it holds one array without a name")
        with archive:
            return {name: _as_input(archive[name]) for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"cannot read {file} as a .npz file: {error}") from error


def _packaged_models() -> dict[str, Path]:
    folder = packaged_assets()
    return {} if folder is None else {path.stem: path for path in sorted(folder.glob("**/*.onnx"))}
