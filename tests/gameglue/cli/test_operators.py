"""`gameglue operators`: the table agrees with the registry."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from engine.api import operator_support
from engine.operators.registry import Registry, operator
from gameglue.cli import main

ROOT = Path(__file__).parents[3]
COUNT = len(operator_support.BACKENDS)
Capture = pytest.CaptureFixture[str]


def rows_of(printed: str) -> dict[str, list[str]]:
    """The table's cells by operator."""
    return {line.split()[0]: line.split()[1:] for line in printed.splitlines() if line.strip()}


def made() -> Registry:
    """A registry with one operator of each kind."""
    registry = Registry()

    @operator("Twice", since=9, until=12, registry=registry)
    def twice_9(k: object, x: object) -> None: ...

    @operator("Twice", since=13, until=14, registry=registry)
    def twice_13(k: object, x: object) -> None: ...

    @operator("Twice", since=20, registry=registry)
    def twice_20(k: object, x: object) -> None: ...

    @operator("Old", since=1, registry=registry)
    def old(k: object, x: object) -> None: ...

    @operator("Sorted", kind="numpy", domain="my.game", since=2, registry=registry)
    def sort(x: object) -> None: ...

    return registry


def test_kinds_and_versions_come_from_the_declarations() -> None:
    rows = {row.title: row for row in operator_support.supported(made())}
    assert rows["Twice"].versions == "9-14, 20+"
    assert rows["Old"].versions == "7+"
    assert rows["my.game.Sorted"].versions == "2+"
    assert {rows["Twice"].on(b) for b in operator_support.BACKENDS} == {"native"}
    on = {b: rows["my.game.Sorted"].on(b) for b in operator_support.BACKENDS}
    assert on.pop("cpu") == "native"
    assert set(on.values()) == {"fallback"}
    lacking = {row.title: row for row in operator_support.absent(made())}
    assert {lacking["Relu"].on(b) for b in operator_support.BACKENDS} == {"refused"}
    assert lacking["Relu"].versions == "1+"
    assert "Twice" not in lacking
    text = operator_support.markdown(made())
    assert "3 operators, 2 of them on every backend" in text
    assert "| `ai.onnx` | Old, Twice |  |" in text
    assert "| `my.game` |  | Sorted |" in text


def test_types_that_a_backend_lacks_are_named() -> None:
    assert operator_support.lacking_types("cpu") == ()
    assert "float64" in operator_support.lacking_types("gl_pixel")
    assert any("GPU_PIXEL" in note and "float64" in note for note in operator_support.type_notes())


def test_the_table_lists_what_is_asked_for(capsys: Capture) -> None:
    assert main(["operators", "conv", "Relu"]) == 0
    rows = rows_of(capsys.readouterr().out)
    assert rows["Conv"] == rows["Relu"] == ["7+", *["native"] * COUNT]
    assert "Gemm" not in rows
    assert main(["operators", "--backend", "gpu_pixel"]) == 0
    rows = rows_of(capsys.readouterr().out)
    assert rows["operator"] == ["opsets", "GPU_PIXEL"]
    assert rows["Gemm"] == ["7+", "native"]


def test_what_the_engine_lacks_is_shown_when_asked_for(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = operator_support.Support("", "Missing", "9+", None)
    monkeypatch.setattr(operator_support, "absent", lambda: [lacking])
    assert main(["operators", "missing"]) == 0
    printed = capsys.readouterr().out
    assert rows_of(printed)["Missing"] == ["9+", *["refused"] * COUNT]
    assert "refused: no such operator in this engine" in printed


def test_unknown_names_and_domains_are_told(capsys: Capture) -> None:
    assert main(["operators", "konv"]) == 2
    assert "ONNX has no operator 'konv'; did you mean Conv" in capsys.readouterr().err
    assert main(["operators", "--domain", "nowhere"]) == 2
    assert "no operator of the domain 'nowhere'; domains: ai.onnx, ai.onnx.ml" in capsys.readouterr().err


def test_markdown_is_a_table_by_domain(capsys: Capture) -> None:
    assert main(["operators", "--markdown"]) == 0
    printed = capsys.readouterr().out
    assert "| `ai.onnx` |" in printed
    assert "| `com.microsoft` |" in printed


def test_every_operator_of_onnx_is_in_the_table_or_absent() -> None:
    known = {(row.domain, row.name) for row in (*operator_support.supported(), *operator_support.absent())}
    assert {(s.domain, s.name) for s in onnx.defs.get_all_schemas()} <= known
