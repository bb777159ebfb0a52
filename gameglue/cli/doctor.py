"""`gameglue doctor`: what this machine offers, and what to install for the rest."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from engine import SystemInfo
from engine.base.cache import cache_dir
from engine.device.cl.device import OPENCL_HINT
from gameglue.audio.mixer import close_mixer, open_mixer
from gameglue.cli.console import add_json_option, output, print_json, properties, title
from gameglue.cli.driver_faults import driver_faults
from gameglue.cli.environment import VARIABLES
from gameglue.graphics.context import how_to_get_opengl
from gameglue.graphics.surface import has_display
from gameglue.host.pygame_ce import import_pygame
from gameglue.inference.backend_choice import BACKEND_CHOICES, why_unavailable

Rows = list[tuple[str, object]]

_PACKAGES = (
    "gameglue",
    "numpy",
    "onnx",
    "numba",
    "llvmlite",
    "moderngl",
    "pygame-ce",
    "pyopencl",
    "onnxruntime",
    "imgui-bundle",
)
_OPTIONAL = {
    "onnxruntime": "to compare with onnxruntime in `gameglue bench`: pip install onnxruntime",
    "imgui-bundle": 'to look into running games with F2: pip install "gameglue[inspector]"',
}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, line: str) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        name,
        help=line,
        description="Show what this machine supports: processor, OpenGL, OpenCL, display, sound, gamepads, "
        "kernel cache; available backends, and what to install for the others; environment "
        "variables that are set. Always exits with 0.",
    )
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print all sections; a section that fails reports its error and the others follow."""
    advice: list[str] = []
    sections: tuple[tuple[str, Callable[[list[str]], Rows]], ...] = (
        ("machine", _machine),
        ("OpenGL", _opengl),
        ("OpenCL", _opencl),
        ("display", _display),
        ("sound and gamepads", _devices),
        ("kernel cache", _cache),
        ("packages", _packages),
        ("backends", _backends),
        ("environment variables", _environment),
    )
    console = output()
    found: dict[str, object] = {}
    for name, ask in sections:
        if not arguments.json:
            title(console, name)
        try:
            rows = ask(advice)
        except Exception as error:  # noqa: BLE001 - a section that fails must not hide the others
            rows = [("cannot tell", f"{type(error).__name__}: {error}")]
        found[name] = [{"name": key, "value": value} for key, value in rows]
        if not arguments.json:
            properties(console, rows, indent=2)
    if arguments.json:
        print_json({**found, "to do": advice})
        return 0
    title(console, "to do")
    if advice:
        for line in advice:
            console.print(f"  {line}", markup=False)
    else:
        console.print("  nothing, all is here")
    return 0


def _machine(advice: list[str]) -> Rows:
    info = SystemInfo.query()
    return [
        ("system", info.operating_system),
        ("python", f"{platform.python_version()} ({sys.executable})"),
        ("processor", f"{info.cpu_name}, {info.cpu_cores} core(s) for this process"),
        ("features", " ".join(info.cpu_features) or "not reported by this system"),
    ]


def _opengl(advice: list[str]) -> Rows:
    gl = SystemInfo.query().gl
    if gl is None:
        advice.append(f"OpenGL: {how_to_get_opengl()}")
        return [("OpenGL", f"none: {SystemInfo.query().gl_reason}")]
    drawn = "the processor (a software renderer)" if gl.is_software else "the graphics card"
    if gl.is_software:
        advice.append("OpenGL is drawn by the processor: with a graphics card, install its maker's driver")
    advice.extend(driver_faults(gl))
    return [
        ("renderer", gl.renderer),
        ("version", gl.version),
        ("drawn by", drawn),
        ("compute", "yes" if gl.supports_compute else "no (OpenGL 4.3 has it)"),
    ]


def _opencl(advice: list[str]) -> Rows:
    info = SystemInfo.query()
    rows: Rows = [
        (device.platform, f"{device.name}, {device.version} ({'GPU' if device.is_gpu else 'processor'})")
        for device in info.cl_devices
    ]
    rows += [
        (device.platform, f"{device.name}: kernels do not run: {why}") for device, why in info.cl_refused
    ]
    if not info.cl_devices:
        advice.append(f"OpenCL: {OPENCL_HINT}")
    return rows or [("OpenCL", f"none: {info.cl_reason or 'no device'}")]


def _display(advice: list[str]) -> Rows:
    names = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    listed = ", ".join(f"{name}={os.environ[name]}" for name in names if os.environ.get(name))
    if has_display():
        return [("window", f"yes{f' ({listed})' if listed else ''}")]
    advice.append(
        "display: there is none, demos play without a window; with Xvfb: xvfb-run gameglue play digits"
    )
    return [("window", f"no display{f' ({listed})' if listed else ''}")]


def _environment(advice: list[str]) -> Rows:
    found: Rows = [(v.name, os.environ[v.name]) for v in VARIABLES if v.name in os.environ]
    return found or [("set", "none that gameglue reads")]


def _devices(advice: list[str]) -> Rows:
    pygame = import_pygame()
    reason = open_mixer()
    sound = f"none, games play in silence: {reason}" if reason else f"yes ({pygame.mixer.get_driver()})"
    close_mixer()
    pygame.joystick.init()
    names = [pygame.joystick.Joystick(n).get_name() for n in range(pygame.joystick.get_count())]
    pygame.joystick.quit()
    return [("sound", sound), ("gamepads", ", ".join(names) or "none plugged in")]


def _cache(advice: list[str]) -> Rows:
    folder = cache_dir()
    if folder is None:
        advice.append("kernel cache: there is no folder to write; set GAMEGLUE_CACHE_DIR to one of your own")
        return [("folder", "none: kernels are compiled at every start")]
    rows: Rows = [("folder", folder)]
    for part in sorted(p for p in folder.iterdir() if p.is_dir()):
        count, size = _measure(part)
        rows.append((part.name, f"{count} files, {size / 2**20:.1f} MiB"))
    if len(rows) == 1:
        rows.append(("content", "empty: the first run of a model compiles its kernels"))
    return rows


def _measure(folder: Path) -> tuple[int, int]:
    sizes = []
    for file in folder.rglob("*"):
        try:
            if file.is_file():
                sizes.append(file.stat().st_size)
        except OSError:
            continue  # Another process may tidy up at this moment.
    return len(sizes), sum(sizes)


def _packages(advice: list[str]) -> Rows:
    rows: Rows = []
    for name in _PACKAGES:
        try:
            rows.append((name, version(name)))
        except PackageNotFoundError:
            if name == "gameglue":
                rows.append((name, "not installed, runs from its checkout"))
                continue
            rows.append((name, "not installed"))
            advice.append(_OPTIONAL.get(name, f"pip install {name}"))
    try:
        pygame = import_pygame()
        rows.append(
            ("pygame", f"pygame-ce {pygame.version.ver}, SDL {'.'.join(map(str, pygame.get_sdl_version()))}")
        )
    except Exception as error:  # noqa: BLE001 - a broken SDL raises what it likes
        rows.append(("pygame", f"cannot be used: {error}"))
        advice.append(str(error))
    return rows


def _backends(advice: list[str]) -> Rows:
    info = SystemInfo.query()
    return [(choice.label, why_unavailable(choice, info) or "runs here") for choice in BACKEND_CHOICES]
