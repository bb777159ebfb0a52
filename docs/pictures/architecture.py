"""Draw the packages' folders, and one inference: python docs/pictures/architecture.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "pages" / "images"

ENGINE = {
    "base": "errors, element types, shapes, cache folder, host memory",
    "device": "OpenGL contexts, OpenCL queues, native code, job threads",
    "kernels": "the kernel language: expressions, NumPy evaluation, printers",
    "graph": "Model, Layer, importers of model files",
    "operators": "one definition per operator",
    "compiler": "passes, tracing, fusion, lowering, memory planning",
    "backends": "CPU, OpenGL compute, OpenGL pixel, OpenCL",
    "runtime": "plans by shape, execution, queue, readback, plan store",
    "api": "Worker, Tensor, ModelLoader, textures, command buffers, jobs",
}
"""The folders of `engine/`, from the one that imports nothing, and what is in each."""

GAME = {
    "host": "App, frame, clock, resources",
    "scene": "objects, transforms, files",
    "scripting": "MonoBehaviour, coroutines",
    "inference": "requests in a frame's budget",
    "learning": "networks that learn",
    "graphics": "cameras, sprites, meshes",
    "audio": "clips, sources, mixer",
    "input": "keys, pointer, gamepads",
    "inspector": "overlay, editors",
    "profiling": "frame times, reports",
    "reloading": "files that change",
    "shipping": "games without Python",
    "cli": "the gameglue command",
}
"""The folders of `gameglue/`, and what is in each."""

STEPS = (
    ("model file", "", "ONNX"),
    ("Model", "engine/graph/importers", "layers, constants, inputs"),
    ("Model", "engine/compiler/passes", "after passes: fewer, joined layers"),
    ("formulas", "engine/compiler/trace.py", "in the kernel language, one for each tensor"),
    ("Plan", "engine/compiler/lower.py", "fused, lowered to steps and buffers"),
    ("Program", "engine/backends", "a recorded command list"),
    ("outputs", "engine/runtime/executor.py", "enqueued, not yet computed"),
    ("array or texture", "engine/runtime/tensor.py", "read back, or used on the GPU"),
)
"""One inference: what there is, which file makes it, and what that is."""

BLUE, GREEN, ORANGE, PURPLE = "#4c8dff", "#5bd69a", "#ffb454", "#a078ff"
DARK, LIGHT, GREY = "#12151c", "#e8ecf3", "#8f9ab0"
WIDTH = 720


def framed(height: float, parts: list[str]) -> str:
    """An SVG document with a dark ground."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="ui-sans-serif, system-ui, sans-serif">'
    )
    ground = f'<rect width="{WIDTH}" height="{height}" rx="12" fill="{DARK}"/>'
    return "\n".join([head, ground, *parts, "</svg>"]) + "\n"


def box(x: float, y: float, width: float, height: float, color: str, text: str, size: int = 15) -> list[str]:
    """A filled rectangle with a word in its middle."""
    return [
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{color}"/>',
        f'<text x="{x + width / 2}" y="{y + height / 2 + 5}" text-anchor="middle" font-size="{size}" '
        f'font-weight="600" fill="{DARK}">{escape(text)}</text>',
    ]


def note(x: float, y: float, text: str, color: str = LIGHT, size: int = 14) -> str:
    """A line of text that begins at a place."""
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{color}">{escape(text)}</text>'


def check_folders(package: str, told: Mapping[str, str]) -> None:
    """Raise `ValueError` where a package has other folders than the drawing."""
    there = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
    if there != set(told):
        raise ValueError(
            f"{package}/ has the folders {sorted(there)}; change the drawing and architecture.md"
        )


def layers() -> str:
    """The folders of the engine, with the packages above them."""
    check_folders("engine", ENGINE)
    rows = [
        ("demos", "games that use what is public", ORANGE),
        ("gameglue", "the game side; re-exports the engine's public names", ORANGE),
        *((name, what, PURPLE if name == "api" else BLUE) for name, what in reversed(ENGINE.items())),
    ]
    row, top, left = 40, 16, 52
    parts: list[str] = []
    for k, (name, what, color) in enumerate(rows):
        y = top + row * k
        parts += box(left, y + 4, 130, row - 8, color, name)
        parts.append(note(left + 150, y + row / 2 + 5, what))
    first, last = top + row / 2, top + row * (len(rows) - 0.5)
    parts += [
        f'<path d="M 30 {first} V {last - 8}" stroke="{GREY}" stroke-width="2"/>',
        f'<path d="M 30 {last} l -5 -10 h 10 z" fill="{GREY}"/>',
        f'<text transform="translate(20 {(first + last) / 2}) rotate(-90)" text-anchor="middle" '
        f'font-size="12" fill="{GREY}">imports</text>',
    ]
    return framed(2 * top + row * len(rows), parts)


def inference() -> str:
    """One inference, from a file to an array."""
    row, top, left = 58, 16, 40
    parts: list[str] = []
    for k, (thing, file, what) in enumerate(STEPS):
        y = top + row * k
        if k:
            parts.append(f'<path d="M {left + 75} {y - 18} v 14" stroke="{GREY}" stroke-width="2"/>')
            parts.append(f'<path d="M {left + 75} {y + 2} l -5 -8 h 10 z" fill="{GREY}"/>')
        color = (ORANGE, GREEN, GREEN, BLUE, BLUE, BLUE, PURPLE, ORANGE)[k]
        parts += box(left, y + 2, 150, row - 20, color, thing)
        parts.append(note(left + 172, y + 18, what))
        if file:
            if not (ROOT / file).exists():
                raise ValueError(f"there is no {file}; change the drawing and architecture.md")
            parts.append(note(left + 172, y + 36, file, GREY, 12))
    brackets = (("once per model", 1, 2), ("once for all sizes", 3, 5), ("every schedule", 6, 7))
    for text, first, last in brackets:
        a, b = top + row * first + 2, top + row * (last + 1) - 18
        parts.append(f'<path d="M 560 {a} h 8 V {b} h -8" fill="none" stroke="{GREY}" stroke-width="2"/>')
        parts.append(note(580, (a + b) / 2 + 5, text, GREY))
    return framed(2 * top + row * len(STEPS) - 12, parts)


def game() -> str:
    """The folders of the game side."""
    check_folders("gameglue", GAME)
    columns, width, height, top, left = 3, 218, 66, 20, 20
    parts: list[str] = []
    for k, (name, what) in enumerate(GAME.items()):
        x, y = left + (width + 12) * (k % columns), top + (height + 10) * (k // columns)
        parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="#1d2230"/>')
        color = GREEN if name in ("host", "scene", "scripting") else BLUE
        color = PURPLE if name in ("inference", "learning") else color
        color = ORANGE if name in ("inspector", "profiling", "reloading", "shipping", "cli") else color
        parts += box(x + 10, y + 9, 100, 24, color, name, 14)
        parts.append(note(x + 10, y + 53, what, LIGHT, 13))
    rows = -(-len(GAME) // columns)
    return framed(2 * top + rows * (height + 10) - 10, parts)


DRAWINGS: dict[str, Callable[[], str]] = {"layers": layers, "inference": inference, "game": game}
"""By the name of a picture, what draws it."""


if __name__ == "__main__":
    for name, draw in DRAWINGS.items():
        target = IMAGES / f"{name}.svg"
        target.write_text(draw(), encoding="utf-8")
        print(f"{target}: {target.stat().st_size} bytes")
