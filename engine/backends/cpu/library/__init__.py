"""Source library of CPU kernels: the kernel language's operations as code that LLVM vectorises.

The modules of this package are never imported by the engine. Their text becomes part of each kernel's
source, and so of the key under which the kernel's object code is stored.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from engine.device.native.prelude import PRELUDE, shared

_OWN_IMPORT = re.compile(r"^from engine\.backends\.cpu\.library.*? import (\([^)]*\)|.*)\n", re.MULTILINE)

# Read at once: files that change under a running process do not fit what it has imported.
_SOURCES = {path.stem: path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("*.py")}


@cache
def library_text(*extra: str, helpers: str = "") -> str:
    """The prelude, the language's operations, and the modules named in `extra`: the start of a source.

    helpers: text that follows, in which several kernels are alike: what it defines is compiled once for all.
    """
    modules = ("llvm_value", "llvm_intrinsic", "functions", "operations", *extra)
    return "".join([PRELUDE, *map(_text, modules), shared(helpers) if helpers else ""])


@cache
def _text(name: str) -> str:
    # All modules end up in one namespace.
    return shared(_OWN_IMPORT.sub("", _SOURCES[name]))
