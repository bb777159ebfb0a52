"""Files as nobody would write them: each is read, or refused with an error of ours."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from gameglue import App, SceneError
from gameglue.scene.files.text import Node, dump, parse
from tests.gameglue.scene.files.parts import Asset, Musket, Raider

PARTS = "tests.gameglue.scene.files.parts"
EXAMPLES = settings(max_examples=50)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
WORDS = (
    "scene prefab version objects object name tag layer active position rotation scale components children "
    "overrides enabled state Raider Musket Raider.speed a/Musket.damage speed target gun way picture "
    "stats spot turn pair numbers names table anything note $ref $tuple $array $dict $set "
    "$vec3 shape values base64 float32 "
    "a a/b a:Musket a[1] . / .. a.txt none.prefab gun.prefab self.scene"
).split()
words = st.one_of(texts, st.sampled_from(WORDS))
leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), words)
data = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=25,
)
"""Anything that YAML can hold."""

fields = st.dictionaries(
    st.sampled_from([*Raider.__annotations__, "spede", "enabled"]), st.one_of(data, words), max_size=5
)
components = st.one_of(
    st.sampled_from(
        ["Raider", "Musket", f"{PARTS}:Bearer", "Renderer", "no.module:X", "MonoBehaviour", ":", "x:y"]
    ),
    st.builds(lambda f, e: {"Raider": f, **e}, fields, st.dictionaries(words, data, max_size=1)),
    data,
)
objects = st.recursive(
    st.fixed_dictionaries(
        {"name": st.one_of(st.sampled_from(["a", "b", "a/b", ""]), leaves)},
        optional={
            "tag": leaves, "layer": leaves, "active": leaves,
            "position": st.lists(leaves, max_size=4), "rotation": data, "scale": data,
            "components": st.lists(components, max_size=3),
            "prefab": st.sampled_from(["gun.prefab", "self.prefab", "x.prefab", 3]),
            "overrides": st.dictionaries(words, data, max_size=3),
        },
    ),
    lambda below: st.builds(lambda o, c: {**o, "children": c}, below, st.lists(below, max_size=3)),
    max_leaves=6,
)  # fmt: skip


@pytest.fixture
def fuzzed_app(make_app: Callable[..., App], tmp_path: Path) -> App:
    app = make_app(on_error="raise", folder=tmp_path)
    app.resources.register_loader(Asset, Asset)
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "gun.prefab").write_text(
        "prefab: gun\nversion: 1\n"
        "object: {name: gun, components: [Musket], children: [{name: a, components: [Musket]}]}"
    )
    (tmp_path / "self.prefab").write_text("prefab: s\nversion: 1\nobject: {prefab: self.prefab}")
    return app


def read(app: App, content: bytes) -> bool:
    """Whether the file is one; raises whatever is not ours."""
    path = app.resources.folder / "fuzzed.scene"
    path.write_bytes(content)
    try:
        scene = app.load_scene(path)
    except SceneError:
        return False
    first = scene.save("first", strict=False).read_text()
    assert app.load_scene("first").save("second", strict=False).read_text() == first
    return True


@EXAMPLES
@given(content=st.one_of(st.binary(max_size=200), texts.map(str.encode)))
def test_bytes(fuzzed_app: App, content: bytes) -> None:
    read(fuzzed_app, content)


@EXAMPLES
@given(content=data)
def test_data_that_is_no_scene(fuzzed_app: App, content: Any) -> None:
    read(fuzzed_app, dump(content).encode())


@EXAMPLES
@given(content=st.lists(objects, max_size=3))
def test_nearly_scenes(fuzzed_app: App, content: list[Any]) -> None:
    read(fuzzed_app, dump({"scene": "x", "version": 1, "objects": content}).encode())


@EXAMPLES
@given(content=fields)
def test_nearly_fields(fuzzed_app: App, content: dict[str, Any]) -> None:
    known = {name: value for name, value in content.items() if name in Raider.__annotations__}
    for name, value in known.items():
        read(fuzzed_app, dump({
            "scene": "x", "version": 1,
            "objects": [{"name": "a", "components": ["Musket", {"Raider": {name: value}}]}],
        }).encode())  # fmt: skip


@EXAMPLES
@given(cut=st.integers(0, 400), put=st.binary(max_size=4), at=st.integers(0, 400))
def test_damaged_files(fuzzed_app: App, cut: int, put: bytes, at: int) -> None:
    whole = (
        "scene: x\nversion: 1\nobjects:\n- name: a\n  position: [1, 2]\n  rotation: 30\n  components:\n"
        "  - Musket: {damage: 3}\n  - Raider:\n      gun: a\n      way: [a, a/b]\n      stats: {strength: 3}"
        "\n      numbers: {$array: float32, shape: [2], values: [1, 2]}\n  children:\n  - name: b\n"
        "  - prefab: gun.prefab\n    overrides: {Musket.damage: 4, a/tag: x}\n"
    ).encode("ascii")
    read(fuzzed_app, whole[:cut] if not put else whole[:at] + put + whole[at + len(put) :])
    assert read(fuzzed_app, whole)


def bare(node: Node) -> Any:
    if isinstance(node.value, list):
        return [bare(part) for part in node.value]
    if isinstance(node.value, dict):
        return {key: bare(part) for key, part in node.value.items()}
    return node.value


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(alike(a[key], b[key]) for key in a)
    return type(a) is type(b) and a == b


@EXAMPLES
@given(content=data)
def test_text_and_back(content: Any) -> None:
    assert alike(bare(parse(dump(content), "x")), content)


@EXAMPLES
@given(value=data, name=texts, tag=texts)
def test_any_plain_value_is_saved_and_read(fuzzed_app: App, value: Any, name: str, tag: str) -> None:
    scene = fuzzed_app.new_scene(name)
    owner = scene.create(name, tag=tag)
    other = scene.create(name, Musket, parent=owner)
    owner.add_component(Raider, anything=value, target=other, gun=other.components[0], name_shown=name + "x")
    loaded = fuzzed_app.load_scene(scene.save("one"))
    back = loaded.find_components(Raider)[0]
    assert alike(back.anything, value)
    assert back.target is loaded.objects[1]
    assert back.gun is loaded.objects[1].components[0]
    assert [(loaded.name, o.name, o.tag) for o in loaded.roots] == [(name, name, tag)]
