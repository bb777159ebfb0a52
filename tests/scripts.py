"""Runs Python scripts in child processes; on Linux these are forked from one that has imported gameglue.

A short script spends most of its time importing. Here a server process, one for each process of the tests,
imports what games import and forks a child for each script. The child takes over the given environment and
folder, runs the script as its main module, and ends as any Python program does. On other systems each script
has a fresh process.
"""

from __future__ import annotations

import atexit
import faulthandler
import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

# Nothing beyond what gameglue itself imports for a game with a model: scripts that lack an import still fail.
_IMPORTED = (
    "gameglue.host.app",
    "gameglue.graphics.graphics",
    "gameglue.inference",
    "engine.api.worker",
    "engine.backends.cpu.backend",
    "onnx",
    "pygame",
)


def run_script(
    script: Path,
    *arguments: str,
    folder: Path,
    environment: Mapping[str, str],
    timeout: int = 300,
    is_fresh: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own, without input.

    Args:
        folder: The folder in which it starts.
        environment: All of its environment variables; gameglue's tree is added.
        timeout: Seconds after which it is ended, with the stack of every thread as its last words.
        is_fresh: It needs a process in which nothing was imported.

    Returns:
        Its exit code and what it printed.
    """
    command = [str(script), *arguments]
    variables = {"PYGAME_HIDE_SUPPORT_PROMPT": "1", **environment, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as name:
        files = [Path(name, "output"), Path(name, "errors")]
        if is_fresh or not sys.platform.startswith("linux"):
            with files[0].open("w") as output, files[1].open("w") as errors:
                code = subprocess.run(
                    [sys.executable, "-X", "faulthandler", *command], cwd=folder, env=variables,
                    stdin=subprocess.DEVNULL, stdout=output, stderr=errors, timeout=timeout, check=False,
                ).returncode  # fmt: skip
        else:
            code = _ask(
                {"command": command, "folder": str(folder), "variables": variables, "timeout": timeout,
                 "files": [str(file) for file in files]}
            )  # fmt: skip
        return subprocess.CompletedProcess(command, code, *(file.read_text() for file in files))


def _ask(request: Mapping[str, object]) -> int:
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    return int(server.stdout.readline())


@functools.cache
def _server() -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-P", "-X", "faulthandler", __file__],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYGAME_HIDE_SUPPORT_PROMPT": "1"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    # Closes its input, with which it ends, and waits for it.
    atexit.register(server.__exit__, None, None, None)
    return server


def _serve() -> None:
    """Fork a child for each request. Returns in the child, whose main module is then the script."""
    for name in _IMPORTED:
        importlib.import_module(name)
    assert threading.active_count() == 1, "a fork would lack the threads of imported modules"
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _become(json.loads(line))
            return
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    raise SystemExit


def _become(request: Mapping[str, Any]) -> None:
    """Take over what a fresh process is given, and run the script."""
    for name, stream in zip((os.devnull, *request["files"]), (0, 1, 2), strict=True):
        file = os.open(name, os.O_RDWR | os.O_CREAT)
        os.dup2(file, stream)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["variables"])
    os.chdir(request["folder"])
    # Stops the process even where the interpreter hangs.
    faulthandler.register(signal.SIGALRM, chain=True)
    signal.alarm(request["timeout"])
    sys.argv = request["command"]
    script = Path(sys.argv[0])
    sys.path.insert(0, str(script.parent))
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__file__ = str(script)
    exec(compile(script.read_bytes(), script, "exec"), main.__dict__)


if __name__ == "__main__":
    _serve()
