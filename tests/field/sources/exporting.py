"""The command line of sources that write one network after another."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path


def export_all(
    source: str,
    description: str | None,
    names: Iterable[str],
    write: Callable[[str, Path], None],
    argv: Sequence[str] | None,
) -> None:
    """Write each network with its inputs into the folder that is named, or NAME.failed with the reason."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.field.sources.{source}", description=description)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(argv)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        print(name, file=sys.stderr, flush=True)
        target = options.folder / f"{name}.onnx"
        try:
            write(name, target)
        except Exception as error:  # noqa: BLE001 - exporters raise anything
            target.unlink(missing_ok=True)
            reason = f"{type(error).__name__}: {error}"[:800]
            target.with_suffix(".failed").write_text(reason, encoding="utf-8")
