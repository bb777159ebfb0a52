"""The packages import one way, without circles, and each outside package only where it belongs."""

from __future__ import annotations

import ast
import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.backends.table import BACKENDS

ROOT = Path(__file__).parent.parent
PACKAGES = ("engine", "gameglue", "demos")

# Lowest first: a folder of `engine` imports from itself and from those before it in this list. The packages
# above the engine follow.
ENGINE_FOLDERS = ("base", "device", "kernels", "graph", "operators", "compiler", "backends", "runtime", "api")
LEVELS = (*(f"engine.{folder}" for folder in ENGINE_FOLDERS), "engine", "gameglue", "demos")

# Packages that may be imported inside a function: slow to load, or absent on some machines.
HEAVY = {
    "glcontext", "llvmlite", "moderngl", "numba", "onnx", "onnxruntime", "pygame", "pyopencl", "rich",
    "sklearn", "torch",
}  # fmt: skip

# Outside package -> where in `engine` it may be imported. What is not listed is free.
CONFINED = {
    "pygame": (),
    "gameglue": (),
    "demos": (),
    "moderngl": ("engine.device*", "engine.backends*", "engine.runtime.device_tensor_data"),
    "glcontext": ("engine.device*", "engine.backends*"),
    "pyopencl": ("engine.device*", "engine.backends*"),
}


@dataclass(frozen=True)
class Import:
    """One import statement's target, and how it stands in the source."""

    importer: str
    target: str
    line: int
    in_function: bool
    for_types: bool
    explained: bool
    is_named: bool = False
    """Whether a string names the module, which something else may import."""


def source_files(root: Path) -> dict[str, Path]:
    """Every module of the packages, by its dotted name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(name: str, path: Path, modules: set[str]) -> Iterator[Import]:
    """The imports in one file; `from package import module` counts as an import of the module.

    A string that is a module of ours, or a name in one ("module:name"), counts as a named import.
    """
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]

    def visit(node: ast.AST, function: int, for_types: bool) -> Iterator[Import]:
        targets = []
        is_named = False
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_named = True
            module = node.value.partition(":")[0]
            targets = [module] if module.startswith("engine.") and module in modules else []
        elif isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            targets = [f"{base}.{a.name}" if f"{base}.{a.name}" in modules else base for a in node.names]
        for target in dict.fromkeys(targets):
            line = getattr(node, "lineno", 0)
            explained = any("#" in text for text in lines[function:line])
            yield Import(name, target, line, function > 0, for_types, explained, is_named)
        for child in ast.iter_child_nodes(node):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                function = node.lineno
            types = for_types or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
            yield from visit(child, function, types)

    yield from visit(ast.parse(text), 0, False)


def level(module: str) -> int | None:
    """The place of a module in `LEVELS`; none for a module of `engine` outside the folders."""
    package, _, rest = module.partition(".")
    if package == "engine" and rest:
        package = f"engine.{rest.partition('.')[0]}"
    return LEVELS.index(package) if package in LEVELS else None


def backend_of(module: str) -> str:
    """The folder of the one backend that a module belongs to; "" for what several share."""
    for entry in BACKENDS:
        folder = entry.path.partition(":")[0].rpartition(".")[0]
        if module == folder or module.startswith(folder + "."):
            return folder
    return ""


def outside(imports: list[Import], package: str) -> list[Import]:
    return [i for i in imports if i.target == package or i.target.startswith(package + ".")]


def describe(found: list[Import]) -> list[str]:
    return [f"{i.importer}:{i.line} imports {i.target}" for i in found]


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The modules that import each other round about: what is left when loose ends are peeled off."""
    left = {name: set(targets) & set(edges) for name, targets in edges.items()}
    changed = True
    while changed:
        importers = {target for targets in left.values() for target in targets}
        loose = [name for name, targets in left.items() if not targets or name not in importers]
        for name in loose:
            del left[name]
        for targets in left.values():
            targets.difference_update(loose)
        changed = bool(loose)
    return [sorted(left)] if left else []


@pytest.fixture(scope="module")
def modules() -> dict[str, Path]:
    return source_files(ROOT)


@pytest.fixture(scope="module")
def imports(modules: dict[str, Path]) -> list[Import]:
    names = set(modules)
    return [item for name, path in modules.items() for item in imports_of(name, path, names)]


def test_every_module_has_a_level(modules: dict[str, Path]) -> None:
    assert [name for name in modules if level(name) is None] == []


def test_no_import_points_upward(imports: list[Import], modules: dict[str, Path]) -> None:
    wrong = []
    for item in imports:
        above, below = level(item.target), level(item.importer)
        if item.target in modules and above is not None and below is not None and above > below:
            wrong.append(item)
    assert describe(wrong) == []


def test_only_a_backend_itself_knows_it(imports: list[Import]) -> None:
    """What backends share and what runs them call methods of `Backend` and `DeviceBuffer`."""
    wrong = [
        item
        for item in imports
        if item.importer.startswith(("engine.backends", "engine.runtime", "engine.api"))
        and backend_of(item.target) not in ("", backend_of(item.importer))
    ]
    assert describe(wrong) == []


def comparisons_with_a_backend_s_name(path: Path) -> list[int]:
    """The lines where something's `name` is compared with the name of one backend."""
    names = {entry.name for entry in BACKENDS}
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare):
            sides = list(ast.walk(node))
            if any(isinstance(side, ast.Constant) and side.value in names for side in sides):
                if any(isinstance(side, ast.Attribute) and side.attr == "name" for side in sides):
                    found.append(node.lineno)
    return found


def test_nothing_asks_for_a_backend_by_name(modules: dict[str, Path]) -> None:
    """A backend says what it can do (`Backend.is_host` and others), so that a new one changes nothing."""
    found = {
        name: lines
        for name, path in modules.items()
        if name.startswith("engine.") and (lines := comparisons_with_a_backend_s_name(path))
    }
    assert found == {}


def test_there_is_no_circle(imports: list[Import], modules: dict[str, Path]) -> None:
    edges: dict[str, set[str]] = {name: set() for name in modules}
    for item in imports:
        if item.target in modules and not (item.for_types or item.is_named):
            edges[item.importer].add(item.target)
    assert circles(edges) == []


def test_every_import_of_ours_exists(imports: list[Import], modules: dict[str, Path]) -> None:
    ours = [i for i in imports if i.target.partition(".")[0] in PACKAGES]
    assert ours
    # A folder without __init__.py is a package too.
    folders = {name.rpartition(".")[0] for name in modules}
    assert describe([i for i in ours if i.target not in modules and i.target not in folders]) == []


def test_the_engine_imports_outside_packages_only_where_they_belong(imports: list[Import]) -> None:
    wrong = []
    for package, places in CONFINED.items():
        for item in outside(imports, package):
            if item.importer.partition(".")[0] == "engine":
                if not any(fnmatch.fnmatch(item.importer, place) for place in places):
                    wrong.append(item)
    assert describe(wrong) == []


def test_gameglue_does_not_import_demos(imports: list[Import]) -> None:
    assert describe([i for i in outside(imports, "demos") if i.importer.startswith("gameglue")]) == []


def test_demos_use_what_is_public(imports: list[Import]) -> None:
    """A demo shows how a game is written: it has `gameglue` itself and the errors, nothing from within."""
    inner = [
        item
        for item in imports
        if item.importer.startswith("demos.")
        and not item.importer.startswith("demos.loops")
        and item.target.partition(".")[0] in ("gameglue", "engine")
        and item.target not in ("gameglue", "gameglue.errors")
    ]
    assert describe(inner) == []


def test_imports_inside_functions_are_heavy_or_explained(imports: list[Import]) -> None:
    """Outside packages must be among the heavy ones; anything else needs a comment above, which says why."""
    wrong = []
    for item in imports:
        if not item.in_function or item.for_types or item.is_named:
            continue
        top = item.target.partition(".")[0]
        if top not in HEAVY and not item.explained:
            wrong.append(item)
    assert describe(wrong) == []


def test_modules_are_of_a_size_to_read() -> None:
    sizes = {
        name: len(path.read_text(encoding="utf-8").splitlines())
        for name, path in source_files(ROOT).items()
        if name.startswith(("engine", "gameglue"))
    }
    assert len(sizes) > 300
    too_large = {name: size for name, size in sizes.items() if size > 500}
    assert too_large == {}


def test_the_walk_sees_what_it_must(tmp_path: Path) -> None:
    """The checks above on a small tree with one of each fault, so that they are known to be able to fail."""
    (tmp_path / "engine" / "kernels").mkdir(parents=True)
    (tmp_path / "engine" / "graph").mkdir()
    (tmp_path / "engine" / "graph" / "model.py").write_text(
        'from engine.kernels import a\nTASK = "engine.kernels.b:f"\nTEXT = "engine.kernels.b is a module"\n'
    )
    (tmp_path / "engine" / "kernels" / "__init__.py").write_text("")
    (tmp_path / "engine" / "kernels" / "a.py").write_text(
        "from typing import TYPE_CHECKING\nfrom . import b\nif TYPE_CHECKING:\n"
        "    import engine.graph.model\n"
    )
    (tmp_path / "engine" / "kernels" / "b.py").write_text(
        "def f():\n    from ..kernels.a import x\n\n    # slow\n    import pygame\n"
    )
    found = source_files(tmp_path)
    names = set(found)
    assert names == {"engine.graph.model", "engine.kernels", "engine.kernels.a", "engine.kernels.b"}
    seen = {name: list(imports_of(name, path, names)) for name, path in found.items()}
    imported, named = seen["engine.graph.model"]
    assert (imported.target, imported.is_named) == ("engine.kernels.a", False)
    assert (named.target, named.line, named.is_named) == ("engine.kernels.b", 2, True)
    relative, types = seen["engine.kernels.a"][1:]
    assert (relative.target, relative.for_types) == ("engine.kernels.b", False)
    assert (types.target, types.for_types) == ("engine.graph.model", True)
    deferred, heavy = seen["engine.kernels.b"]
    assert (deferred.target, deferred.in_function, deferred.explained) == ("engine.kernels.a", True, False)
    assert (heavy.target, heavy.explained) == ("pygame", True)
    assert level("engine.graph.model") == 3
    assert level("engine.kernels.a") == 2
    assert level("engine.unheard_of") is None
    assert level("engine") == LEVELS.index("engine")
    assert level("engine.device.gl.device") == 1
    asking = tmp_path / "asking.py"
    asking.write_text(
        'if a.name != "cpu":\n    b = c.name in ("opencl", "x")\nd = e.name == "gl" or f == "cpu"\n'
    )
    assert comparisons_with_a_backend_s_name(asking) == [1, 2]
    assert backend_of("engine.backends.gl.compute.conv") == "engine.backends.gl.compute"
    assert backend_of("engine.backends.gl.storage") == backend_of("engine.backends.base") == ""
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
