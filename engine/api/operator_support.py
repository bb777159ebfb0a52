"""Operator support by backend, as a table made from the operators' declarations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from onnx import defs

from engine.backends import table
from engine.base.dtypes import STORAGE_TYPES
from engine.graph.importers.onnx_importer import OLDEST_OPSET
from engine.graph.model import qualified_op
from engine.operators import OPERATORS
from engine.operators.layout import CHANNELS_LAST
from engine.operators.registry import Kind, Operator, Registry

Status = Literal["native", "fallback", "refused"]
"""How a backend runs an operator: itself, on the CPU (fallback), or not at all."""

BACKENDS = {entry.name: entry.title for entry in table.BACKENDS}
"""The backends, and what the table calls them."""

CPU_REASON = "a NumPy function, which runs on the CPU"
MISSING_REASON = "no such operator in this engine"


@dataclass(frozen=True)
class Support:
    """Support of one operator: its opset versions and how it is defined.

    `kind` is None for an operator that ONNX has and the engine lacks.
    """

    domain: str
    name: str
    versions: str
    kind: Kind | None

    @property
    def title(self) -> str:
        """The name, with its domain in front unless that is ONNX's own."""
        return qualified_op(self.domain, self.name)

    def on(self, backend: str) -> Status:
        """How a backend runs the operator, apart from unsupported element types (`lacking_types`)."""
        if self.kind is None:
            return "refused"
        return "fallback" if self.kind == "numpy" and backend != "cpu" else "native"

    @property
    def note(self) -> str:
        """Why it is not native on every backend, or empty."""
        if self.kind is None:
            return f"refused: {MISSING_REASON}"
        return f"fallback: {CPU_REASON}" if self.kind == "numpy" else ""


def supported(registry: Registry = OPERATORS) -> list[Support]:
    """Every operator that files may use, by domain and name."""
    groups: dict[tuple[str, str], list[Operator]] = {}
    for op in registry:
        if op.domain == CHANNELS_LAST:
            continue
        groups.setdefault((op.domain, op.name), []).append(op)
    found = []
    for (domain, name), group in groups.items():
        newest = max(group, key=lambda op: op.since)
        found.append(Support(domain, name, version_ranges(group), newest.kind))
    return sorted(found, key=lambda s: (s.domain, s.name.lower()))


def absent(registry: Registry = OPERATORS) -> list[Support]:
    """Operators that the installed `onnx` defines and the engine lacks, by domain and name."""
    have = {(s.domain, s.name) for s in supported(registry)}
    first: dict[tuple[str, str], int] = {}
    for schema in defs.get_all_schemas_with_history():
        key = (schema.domain, schema.name)
        first[key] = min(schema.since_version, first.get(key, schema.since_version))
    rows = [Support(*key, f"{since}+", None) for key, since in first.items() if key not in have]
    return sorted(rows, key=lambda s: (s.domain, s.name.lower()))


def version_ranges(group: Sequence[Operator]) -> str:
    """The opset versions that definitions of one operator cover: "7-12, 14+"."""
    ranges: list[tuple[int, int | None]] = []
    for op in sorted(group, key=lambda op: op.since):
        if ranges and ranges[-1][1] == op.since - 1:
            ranges[-1] = (ranges[-1][0], op.until)
        else:
            ranges.append((max(op.since, OLDEST_OPSET) if op.domain == "" else op.since, op.until))
    return ", ".join(_range(*r) for r in ranges)


def _range(since: int, until: int | None) -> str:
    if until is None:
        return f"{since}+"
    return f"{since}-{until}" if since < until else str(since)


def lacking_types(backend: str) -> tuple[str, ...]:
    """Element types that the engine's kernels hold and this backend's do not: the CPU takes their steps."""
    held = table.named(backend).load().storage_types
    return tuple(name for name in STORAGE_TYPES if name not in held)


def type_notes() -> list[str]:
    """Notes on unsupported element types for the table, one sentence each."""
    notes = []
    by_types: dict[tuple[str, ...], list[str]] = {}
    for backend in BACKENDS:
        by_types.setdefault(lacking_types(backend), []).append(BACKENDS[backend])
    for types, backends in by_types.items():
        if types:
            notes.append(f"{' and '.join(backends)} have the CPU do steps over {', '.join(types)}.")
    notes.append("OpenCL does so for float64 where the device has none.")
    notes.append("GPUs keep int64 and uint64 in 32 bits. Strings stay on the CPU.")
    return notes


def markdown(registry: Registry = OPERATORS) -> str:
    """A table in Markdown: one row per domain, operators listed by where they run."""
    rows = supported(registry)
    native = sum(row.on("gl_compute") == "native" for row in rows)
    lines = [
        f"{len(rows)} operators, {native} of them on every backend:",
        "",
        "| domain | on every backend | on the CPU, for any backend |",
        "| --- | --- | --- |",
    ]
    for domain in dict.fromkeys(row.domain for row in rows):
        mine = [row for row in rows if row.domain == domain]
        cells = [
            ", ".join(row.name for row in mine if row.on("gl_compute") == status)
            for status in ("native", "fallback")
        ]
        lines.append(f"| `{domain or 'ai.onnx'}` | {cells[0]} | {cells[1]} |")
    return "\n".join([*lines, "", " ".join(type_notes())])
