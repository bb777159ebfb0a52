"""The chapter of examples shows every script, with what it prints today."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import ROOT
from tests.docs import test_pages


def _examples() -> ModuleType:
    """`docs/examples.py`, which is not in a package."""
    spec = importlib.util.spec_from_file_location("examples", ROOT / "docs" / "examples.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


examples = _examples()
SCRIPTS = sorted(path.stem for path in (ROOT / "demos/examples").glob("[a-z]*.py"))
LONG = {
    "access_tensor_data", "give_inputs", "quantize_a_model", "read_output_three_ways", "serialize_a_model",
    "split_over_frames", "use_a_command_buffer", "use_textures",
}  # fmt: skip
OUTPUTS: dict[str, str] = json.loads(examples.OUTPUTS.read_text(encoding="utf-8"))


def code_of(name: str) -> str:
    return (ROOT / f"demos/examples/{name}.py").read_text(encoding="utf-8")


def test_every_script_is_on_one_page() -> None:
    assert sorted(examples.names()) == SCRIPTS == sorted(OUTPUTS)
    shown = dict(examples.pages())
    for path, (_, _, members) in examples.GROUPS.items():
        for name in members:
            assert code_of(name).rstrip() in shown[f"examples/{path}.md"]
            assert f"{path}.md#{name.replace('_', '-')}" in shown["examples/index.md"]
    loops = {path.stem for path in (ROOT / "demos/loops").glob("*_loop.py")}
    assert set(examples.LOOPS) == loops


def test_examples_are_short() -> None:
    lengths = {name: len(code_of(name).splitlines()) for name in SCRIPTS}
    assert {name for name, lines in lengths.items() if lines >= 40} == LONG
    assert len(lengths) - len(LONG) >= 30
    assert max(lengths.values()) < 70


def test_pictures_are_small_and_there() -> None:
    pictures = {path.stem: path for path in examples.PICTURES.glob("*.png")}
    assert set(examples.PICTURED) <= set(pictures) <= {*examples.PICTURED, *examples.LOOPS}
    assert max(path.stat().st_size for path in pictures.values()) < 60_000


# With the spaces around it, by which NumPy aligns columns.
NUMBER = re.compile(r" *-?\d+\.\d*(?:e[+-]?\d+)? *")


def numbers_of(text: str) -> list[float]:
    return [float(number) for number in NUMBER.findall(text)]


@pytest.mark.parametrize("is_fresh", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", SCRIPTS)
def test_the_page_shows_what_it_prints(name: str, *, is_fresh: bool) -> None:
    printed = examples.output_of(name, is_fresh=is_fresh)
    assert printed.strip()
    if name not in examples.VARYING:
        # Processors round differently: fractions agree as results of backends do, all else to the letter.
        assert NUMBER.sub("#", printed) == NUMBER.sub("#", OUTPUTS[name])
        assert numbers_of(printed) == pytest.approx(numbers_of(OUTPUTS[name]), rel=1e-4, abs=1e-4)


GAMES = [name for name in SCRIPTS if ".run(" in code_of(name)]


@pytest.mark.parametrize(
    "name", [*GAMES[::4], *(pytest.param(n, marks=pytest.mark.long) for k, n in enumerate(GAMES) if k % 4)]
)
def test_a_game_may_end_after_any_frame(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "page.md").write_text(f"```python\n{code_of(name)}```\n", encoding="utf-8")
    monkeypatch.setattr(test_pages, "PAGES", tmp_path)
    play = tmp_path / "play"
    play.mkdir()
    test_pages.play("page.md", play, *test_pages.EARLY)
