"""The environment variables that gameglue reads, for `gameglue doctor` and the documentation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Variable:
    """One environment variable.

    Attributes:
        name: Its name.
        default: What holds where it is not set; empty where that is nothing.
        meaning: What it does, in Markdown.
    """

    name: str
    default: str
    meaning: str


VARIABLES = (
    Variable(
        "GAMEGLUE_CACHE_DIR",
        "`$XDG_CACHE_HOME/gameglue` or `~/.cache/gameglue` on Linux, `~/Library/Caches/gameglue` on macOS, "
        "`%LOCALAPPDATA%\\gameglue\\Cache` on Windows",
        "The folder of compiled kernels, parsed models and plans. Code from it is executed, so on Linux and "
        "macOS a folder that other users can write is not used: a warning names it, and a private temporary "
        "folder or none takes its place. On Windows this is not checked.",
    ),
    Variable(
        "GAMEGLUE_COMPILE",
        "`process`",
        "`inline` compiles CPU kernels in the game's own process rather than in a child process.",
    ),
    Variable(
        "GAMEGLUE_DEBUG",
        "`0`",
        "`1` reports workers and tensors that were never disposed, with the line that created them.",
    ),
    Variable(
        "GAMEGLUE_GL_AS_GRAPHICS_CARD",
        "`0`",
        "`1` treats an OpenGL renderer on the processor as a graphics card; for tests.",
    ),
    Variable("GAMEGLUE_NO_OPENGL", "`0`", "`1` plays as on a machine without OpenGL."),
    Variable(
        "GAMEGLUE_PREBUILT",
        "`on`",
        "`off` ignores the compiled kernels that a wheel contains; when a wheel is built, builds it "
        "without them.",
    ),
    Variable(
        "GAMEGLUE_STORED_PLANS",
        "`on`",
        "`off` neither reads nor writes parsed models and plans: every load parses its file and plans again.",
    ),
    Variable(
        "GAMEGLUE_WATCHDOG",
        "`60` with `gameglue play` and `gameglue profile`, else `0`",
        "A run without a window prints every thread's stack when no frame has ended for so many seconds; "
        "`0` never does.",
    ),
    Variable(
        "GAMEGLUE_WINOGRAD",
        "`4`",
        "Largest tile of Winograd convolutions on the CPU: `4`, `2` (rounds less), or `0` for direct "
        "convolutions.",
    ),
    Variable(
        "GLCONTEXT_DEVICE_INDEX",
        "",
        "Number of the EGL device on which OpenGL contexts without a window are created.",
    ),
    Variable(
        "LP_NUM_THREADS",
        "set by `App` to the number of cores that it leaves to drawing",
        "Threads of Mesa's software renderer llvmpipe; `0` draws within the calls.",
    ),
    Variable(
        "SDL_VIDEODRIVER", "", "`dummy` or `offscreen`: there is no display, games play without a window."
    ),
)
