"""Reads model files, and describes files that are not models."""

from __future__ import annotations

import difflib
from pathlib import Path

from engine.base.errors import ModelImportError

_SIGNATURES = (
    (0, b"version https://git-lfs", "a git-lfs pointer, not the file itself; run 'git lfs pull' to fetch it"),
    (0, b"PK\x03\x04", "a zip archive (PyTorch's .pt and .pth are such); export the network to ONNX first"),
    (0, b"\x80\x02", "a Python pickle; export the network to ONNX first"),
    (0, b"\x89HDF", "an HDF5 file (Keras's .h5 is such); convert it with tf2onnx first"),
    (0, b"\x1f\x8b", "compressed with gzip; unpack it first"),
    (0, b"GGUF", "a GGUF file, which the engine does not read"),
    (4, b"TFL3", "a TensorFlow Lite file; convert it with tf2onnx first"),
    (4, b"ORTM", "in onnxruntime's own .ort format; use the .onnx file that it was made from"),
)


def read_file(path: Path) -> bytes:
    """The bytes of a model file; raises `ModelImportError` if it cannot be read."""
    try:
        if path.is_dir():
            raise ModelImportError(f"'{path}' is a folder, expected a model file{_models_in(path)}")
        if not path.exists():
            raise ModelImportError(f"there is no file '{path}'{_near_matches(path)}")
        if not path.is_file():
            raise ModelImportError(f"'{path}' is not an ordinary file")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise ModelImportError(f"cannot read '{path}': {error}") from error


def explain_foreign(data: bytes) -> str:
    """The likely format of `data` that is not an ONNX model, as the end of a sentence."""
    if not data:
        return "it is empty"
    for offset, signature, words in _SIGNATURES:
        if data[offset : offset + len(signature)] == signature:
            return f"it is {words}"
    head = data[:512]
    if all(byte >= 32 or byte in b"\t\n\r\f" for byte in head):
        return f"it is a text file, which begins with {head[:40].decode('utf-8', 'replace')!r}"
    return "it is damaged, cut short, or of another kind; download or export it again and compare its size"


def _models_in(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.iterdir() if entry.suffix.lower() == ".onnx")
    return f"; it holds {_listed(names)}" if names else ""


def _near_matches(path: Path) -> str:
    """Names close to `path`'s in its folder, as the end of a sentence."""
    folder = path.parent
    if not folder.is_dir():
        return f"; nor is there a folder '{folder}'"
    names = {entry.name.lower(): entry.name for entry in folder.iterdir() if entry.is_file()}
    below = next(iter(sorted(folder.glob(f"*/{path.name}"))), None) if path.name == str(path) else None
    if below is not None:
        return (
            f" in {folder.resolve()}; there is '{below.as_posix()}': give that path. In a game, "
            "`resources.load` and `Brain.open` search the folder assets by themselves"
        )
    near = [names[match] for match in difflib.get_close_matches(path.name.lower(), names, n=3, cutoff=0.6)]
    if near:
        return f"; did you mean {_listed(near)}?"
    return _models_in(folder)


def _listed(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown
