"""The page for Unity developers: every name has a row, and every counterpart exists."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
from collections.abc import Iterator

import numpy as np
import pytest

import gameglue
from engine import CommandBuffer, ModelLoader, Tensor, Worker
from engine.operators import OPERATORS
from gameglue import App, MonoBehaviour, Renderer, WebCamTexture
from gameglue.cli import build_parser
from gameglue.errors import HookError
from gameglue.scripting.hooks import HOOKS
from tests.conftest import ROOT
from tests.peer import open_session
from tests.unity_functional import CASES, SAME_FORMULA, compiled
from tests.unity_names import API, COROUTINES, FUNCTIONAL, IN_EXAMPLES, LAYERS, MESSAGES

SECTION = (ROOT / "docs" / "pages" / "coming-from" / "unity.md").read_text(encoding="utf-8")
CODE = re.compile(r"`([^`]+)`")

ROWS = [
    (left, right)
    for line in SECTION.splitlines()
    if line.startswith("| ") and not line.startswith("| ---")
    for left, right in [re.split(r" \| ", line.strip("| "), maxsplit=1)]
]
BY_NAME = {name: right for left, right in ROWS for name in CODE.findall(left)}
SAME = CODE.findall(re.search(r"^(.*) are operators of the same name\.", SECTION, re.MULTILINE)[1])  # type: ignore[index]

FORMULA = re.compile(r"[A-Z]\w+\(.*\)")
IN_ONNX = {
    name: CODE.findall(right)
    for part in re.findall(r"in ONNX \|\n\| --- \| --- \|\n(.*?)\n\n", SECTION, re.DOTALL)
    for line in part.splitlines()
    for left, right in [re.split(r" \| ", line.strip("| "), maxsplit=1)]
    for name in CODE.findall(left)
}

OPERATOR_NAMES = {operator.name for operator in OPERATORS if operator.domain in ("", "ai.onnx")}

WORDS = {"with", "async def", "speed: float = 4.0", "screen=self.app", "is_done()", "tf2onnx"}
"""Python and others' names, which are no counterparts."""


def test_every_message_has_a_row() -> None:
    assert sorted(set(MESSAGES) - set(BY_NAME)) == []
    assert sorted(set(COROUTINES) - set(BY_NAME)) == []


def test_every_name_of_the_api_has_a_row() -> None:
    assert sorted(set(API) - set(BY_NAME)) == []
    methods = {name.rpartition(".")[2] for name in BY_NAME} | set(SAME)
    assert sorted(set(IN_EXAMPLES) - methods) == []


def test_every_operator_and_functional_method_is_told() -> None:
    operators = OPERATOR_NAMES
    assert sorted(set(LAYERS) - operators - set(IN_ONNX)) == []
    assert sorted(set(FUNCTIONAL) - set(SAME) - set(IN_ONNX)) == []
    assert sorted(set(SAME) - operators) == []
    assert set(SAME) <= set(FUNCTIONAL)


def test_a_row_says_something() -> None:
    for left, right in ROWS:
        assert (
            CODE.search(right)
            or right.startswith("none: ")
            or "](" in right
            or left == "Unity"
            or (right in ("here", "in ONNX"))
        ), left


# -- counterparts ------------------------------------------------------------------------------------


class Something(MonoBehaviour):
    """What `self` is in the tables."""


@pytest.fixture(scope="module")
def objects() -> Iterator[dict[str, object]]:
    """The objects that the tables' lower-case names stand for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GAMEGLUE_NO_OPENGL", "1")
        with App("unity", headless=True) as app:
            model = ModelLoader.load(app.resources.find("digits/digits.onnx"))
            with Worker(model) as worker, Tensor(np.zeros(3, np.float32)) as tensor:
                yield {
                    "self": app.scene.create("x").add_component(Something),
                    "model": model,
                    "worker": worker,
                    "tensor": tensor,
                    "buffer": CommandBuffer(),
                    "webcam": WebCamTexture(app),
                    "draw": Renderer.draw,
                    "onnx": importlib.import_module("onnx"),
                    **dict.fromkeys(HOOKS),
                }


def counterparts() -> list[str]:
    """Every piece of code in the right columns that is no formula, each once."""
    found: dict[str, None] = {}
    for left, right in ROWS:
        if not any(name in IN_ONNX for name in CODE.findall(left)):
            found |= dict.fromkeys(CODE.findall(right))
    return list(found)


@pytest.mark.parametrize("code", counterparts())
def test_a_counterpart_exists(code: str, objects: dict[str, object]) -> None:
    if code in WORDS:
        return
    if code.startswith("gameglue "):
        assert code.split()[1] in build_parser().format_help()
        return
    if "/" in code:
        assert (ROOT / code).is_file()
        return
    path = code.removeprefix("await ").removeprefix("@").partition("(")[0]
    root, *attributes = path.split(".")
    if root in objects:
        found = objects[root]
    elif hasattr(gameglue, root):
        found = getattr(gameglue, root)
    elif hasattr(builtins, root):
        return
    else:
        found = importlib.import_module(root)
    for number, attribute in enumerate(attributes):
        if inspect.ismodule(found) and not hasattr(found, attribute):
            importlib.import_module(".".join([root, *attributes[: number + 1]]))
        # What a class only declares, its objects have.
        if inspect.isclass(found) and attribute in inspect.get_annotations(found):
            return
        found = getattr(found, attribute)
    if "(" in code and root not in HOOKS:
        assert callable(found), code
    if root in HOOKS and "(" in code:
        assert code == f"{root}({', '.join(HOOKS[root].parameters)})"


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_formula_computes_what_the_method_does(name: str) -> None:
    case, (formula, *others) = CASES[name], IN_ONNX[name]
    for other in others:
        if FORMULA.fullmatch(other):
            ModelLoader.load(compiled(other, case.inputs).SerializeToString())
    if name == "TrueDiv":
        (formula,) = others  # the row's second: the first is FloorDiv's
    model = compiled(formula, case.inputs)
    ModelLoader.load(model.SerializeToString())
    given = {item.name: case.inputs[item.name] for item in model.graph.input}
    session = open_session(model.SerializeToString())
    result = np.asarray(session.run(None, given)[0])
    if case.holds is not None:
        assert case.holds(result)
        return
    assert case.expected is not None
    wanted = np.asarray(case.expected(*(case.inputs[p] for p in inspect.signature(case.expected).parameters)))
    assert result.shape == wanted.shape
    np.testing.assert_allclose(result.astype(np.float64), wanted.astype(np.float64), rtol=1e-4, atol=1e-5)


def test_every_formula_has_a_case() -> None:
    assert sorted(set(IN_ONNX) - set(CASES) - set(SAME_FORMULA) - {"SliceSet"}) == []
    for name, of in SAME_FORMULA.items():
        assert IN_ONNX[name] == IN_ONNX[of]
    for formulas in IN_ONNX.values():
        for formula in formulas:
            if FORMULA.fullmatch(formula):
                names = {n.func.id for n in ast.walk(ast.parse(formula)) if isinstance(n, ast.Call)}  # type: ignore[attr-defined]
                assert names <= OPERATOR_NAMES


# -- the errors of those who spell hooks the C# way ----------------------------------------------------


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_in_c_sharp_spelling_says_what_its_row_says(message: str) -> None:
    with pytest.raises(HookError) as raised:
        type("Behaviour", (MonoBehaviour,), {message: lambda self: None})
    told = str(raised.value)
    row = BY_NAME[message].replace("`", "")
    if row.startswith("none: "):
        assert told.endswith(row.removeprefix("none: "))
    else:
        assert f"spell this hook {row.partition('(')[0]!r}" in told


def test_every_example_is_named() -> None:
    examples = {path.stem for path in (ROOT / "demos/examples").glob("[a-z]*.py")}
    assert set(re.findall(r"`demos/examples/(\w+)\.py`", SECTION)) <= examples
