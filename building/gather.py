"""Which kernels networks need on a kind of processor: plans them all, and compiles nothing.

    python -m building.gather v3 FILE

The level is one of `engine.device.native.prebuilt.LEVELS` for this machine. Kernels differ with the width of
vectors, so this process takes its processor for one of that level, whatever it is. Written to the file, as
a pickle: the kernels as the compiler takes them, by key.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterable
from pathlib import Path

import llvmlite.binding as llvm

from engine.device.native import prebuilt

_KERNEL = tuple[str, str, str, str, int]
"""Name, complete text, entry, signature, words of arguments."""


def pretend(level: str) -> None:
    """Have this process take its processor for one of a level; for the engine's modules, not yet imported."""
    needed = prebuilt.LEVELS[prebuilt.machine()][level]
    if needed:
        features = llvm.FeatureMap(dict.fromkeys(needed, True))
        llvm.get_host_cpu_features = lambda: features
        llvm.get_host_cpu_name = lambda: f"x86-64-{level}"


def gathered() -> dict[str, _KERNEL]:
    """The kernels of all networks of this package, and those that every program needs."""
    from building.networks import networks
    from engine.api.asset import ModelLoader
    from engine.backends.cpu import backend
    from engine.backends.cpu.codegen.native_kernel import source_of
    from engine.backends.cpu.execution.template_source import sources_of_sizes
    from engine.backends.cpu.kernels.convolution.winograd_weights import transforming_source
    from engine.backends.cpu.kernels.matmul.packing import packing_source
    from engine.backends.gl.commands import REPLAY
    from engine.backends.gpu.template import sources_of_numbers
    from engine.base.errors import EngineError
    from engine.compiler.passes.fold_batch_norm import SCALE_ROWS
    from engine.compiler.plan import AnyKernel
    from engine.device.cl.native_calls import CALLS
    from engine.device.jobs.builtin_commands import job_sources
    from engine.device.native import NativeSource
    from engine.runtime.plan_store.cache_keys import MIX
    from engine.runtime.plans.session import Session

    always = [
        *job_sources(),
        packing_source(),
        transforming_source(),
        *sources_of_sizes(),
        MIX,
        SCALE_ROWS,
        REPLAY,
        CALLS,
        *sources_of_numbers(),
    ]
    found: dict[str, NativeSource] = {source.key: source for source in always}

    class Gathering(backend.CPUBackend):
        """Notes the kernels that it would have to have."""

        def prepare(self, kernels: Iterable[AnyKernel], progress: object = None) -> int:
            for kernel in kernels:
                source = source_of(kernel)
                found[source.key] = source
            return 0

    backend.precompile_kernels = lambda is_certain=False: None  # type: ignore[assignment]
    for name, model in networks():
        try:
            Session(ModelLoader.load(model), Gathering(), None, True).prepare_plans()
        except EngineError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
    return {
        key: (source.name, source.whole_text, source.entry, source.signature, source.words)
        for key, source in found.items()
    }


def main(arguments: list[str]) -> None:
    """Gather for the level that is named first, into the file that is named second."""
    level, target = arguments
    pretend(level)
    Path(target).write_bytes(pickle.dumps(gathered()))


if __name__ == "__main__":
    main(sys.argv[1:])
