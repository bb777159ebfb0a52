"""Compiles the kernels that networks commonly need, for the processors of a wheel.

    python -m building.objects FOLDER

Writes one file for each level of this machine's instructions that `engine.device.native.prebuilt` knows.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from time import perf_counter

from engine.device.native import prebuilt
from engine.device.native.compile import CompileFailure, Compiler
from engine.device.native.prelude import SHARED_ABOVE

_LLVM_NAMES = {"v3": "x86-64-v3", "v4": "x86-64-v4", "v8": "generic"}


@cache
def _compiler(level: str) -> Compiler:
    return Compiler(SHARED_ABOVE, _LLVM_NAMES[level])


def _compiled(
    level: str, key: str, name: str, source: str, entry: str, signature: str
) -> tuple[bytes, list[str]] | str:
    """The object and the symbols that it needs, or why there is none."""
    try:
        return _compiler(level).compile(name, source, entry, signature, prebuilt.symbol_of(key))
    except CompileFailure as error:
        return f"{name} for {level}: {error}"


def _say(text: str) -> None:
    """A line of progress, which `pip install -v` shows."""
    print(text, file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    """Write the files; 1 where there are none for this machine."""
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    levels = prebuilt.LEVELS.get(prebuilt.machine(), {})
    began = perf_counter()
    # As the processes do that compile on a player's machine.
    os.environ["NUMBA_DISABLE_INTEL_SVML"] = "1"
    _say(f"planning networks for {', '.join(levels)}: which kernels they need")
    with tempfile.TemporaryDirectory() as name, ProcessPoolExecutor(os.cpu_count()) as pool:
        gathering = {
            level: subprocess.Popen([sys.executable, "-m", "building.gather", level, f"{name}/{level}"])
            for level in levels
        }
        wanted = {}
        for level, process in gathering.items():
            if process.wait():
                return 1
            wanted[level] = pickle.loads(Path(name, level).read_bytes())
        count = sum(map(len, wanted.values()))
        _say(f"{count} kernels gathered in {perf_counter() - began:.0f} s; compiling them")
        jobs = {
            (level, key): pool.submit(_compiled, level, key, *kernel[:-1])
            for level, kernels in wanted.items()
            for key, kernel in kernels.items()
        }
        for done, _ in enumerate(as_completed(jobs.values()), 1):
            if done * 10 // count > (done - 1) * 10 // count:
                _say(f"{done} of {count} kernels compiled, {perf_counter() - began:.0f} s")
        for level, kernels in wanted.items():
            objects = {}
            for key, kernel in kernels.items():
                result = jobs[level, key].result()
                if isinstance(result, str):
                    _say(result)
                    continue
                code, externals = result
                objects[key] = prebuilt.Prebuilt(code, tuple(externals), kernel[-1])
            path = folder / prebuilt.file_name(level)
            prebuilt.write_objects(path, objects)
            size = path.stat().st_size / 2**20
            _say(f"{path.name}: {len(objects)} kernels, {size:.1f} MiB")
    return 0 if levels else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
