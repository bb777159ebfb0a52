"""From an empty cache to the first result, and how many kernels were compiled before and after that.

    python -m tests.benchmarks.first_start
    python -m tests.benchmarks.first_start --python /path/to/venv/bin/python

Each figure comes from a process of its own, in seconds, with an empty folder as its home and its cache. The
second form measures the package that is installed there, as a wheel, which brings object code of common
kernels; beside it, the same package with that code left aside. onnxruntime runs in this environment.

Ends with 1 if a kernel was compiled after a worker was ready, if two rows of ours differ in a bit of their
results, or, with --nothing-compiles, if a kernel was compiled at all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.setting import BenchmarkParser, console, print_end, print_setting, print_table
from tests.benchmarks.subjects import add_model_option, present, subject

CHILD = Path(__file__).with_name("first_start_child.py")
STEPS = ("import", "model", "worker", "first result")
PEER, OURS, COMPILED = "onnxruntime", "gameglue", "gameglue, compiled here"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = BenchmarkParser("benchmarks.first_start", __doc__)
    detector = present(["yunet_n_320"]) or ["mobilenet_v2"]
    add_model_option(parser, ["policy", *detector, "encoder"])
    parser.add_argument("--python", help="of an environment with the package; default: this source tree")
    parser.add_argument("--nothing-compiles", action="store_true", help="fail if any kernel is compiled")
    options = parser.parse_args(argv)
    out = console()
    print_setting(
        out, "from an empty cache to the first result, s", {"package": options.python or "source tree"}
    )
    rows: list[list[str]] = []
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        for model in present(options.models):
            item = subject(model)
            folder = Path(name, model)
            folder.mkdir()
            np.savez(folder / "inputs.npz", **item.inputs)  # type: ignore[arg-type]
            path = str(item.file(folder))
            digests = set()
            for runner in (PEER, OURS, *([COMPILED] if options.python else [])):
                python = sys.executable if runner == PEER or not options.python else options.python
                found = _measured(python, runner, path, folder, is_tree=not options.python)
                times = [found[step] for step in STEPS]
                counts = [str(found.get(count, "")) for count in ("before ready", "after ready")]
                rows.append([model, runner, *(f"{t:.3f}" for t in (*times, sum(times))), *counts])
                if runner == PEER:
                    continue
                digests.add(found["digest"])
                compiled = found["before ready"] + found["after ready"]
                if found["after ready"] or (options.nothing_compiles and runner == OURS and compiled):
                    problems.append(
                        f"{model}: {compiled} kernels compiled, {found['after ready']} when ready"
                    )
            if len(digests) > 1:
                problems.append(f"{model}: the package's kernels give other bits than those compiled here")
    columns = ["model", "runner", *STEPS, "in all", "compiled before ready", "after"]
    print_table(out, columns, rows)
    for problem in problems:
        out.print(problem, markup=False)
    print_end(out)
    return 1 if problems else 0


def _measured(python: str, runner: str, model: str, folder: Path, is_tree: bool) -> dict[str, Any]:
    """What the child printed. Raises CalledProcessError where it failed."""
    with tempfile.TemporaryDirectory() as home:
        environment = {
            k: v for k, v in os.environ.items() if not k.startswith(("GAMEGLUE_", "PYTHON", "XDG_"))
        }
        environment |= {"HOME": home, "GAMEGLUE_CACHE_DIR": str(Path(home, "cache"))}
        if is_tree:
            environment["PYTHONPATH"] = str(CHILD.parents[2])
        if runner == COMPILED:
            environment["GAMEGLUE_PREBUILT"] = "off"
        done = subprocess.run(
            [python, "-P", str(CHILD), runner, model, str(folder / "inputs.npz")],
            cwd=home,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"{model} with {runner}: {done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    raise SystemExit(main())
