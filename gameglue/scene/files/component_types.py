"""Component classes by name: `Door` for a known class, or `game.doors:Door`."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from engine.base.spelling import near
from gameglue.scripting.behaviour import MonoBehaviour

Kind = type[MonoBehaviour]

_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


class Problem(Exception):
    """An error in a file; `line` is set if it differs from the enclosing value's."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def find_class(name: str) -> Kind:
    """Find the class called `name`, importing its module if given. Raises `Problem`."""
    module, colon, qualified = name.rpartition(":")
    return _in_module(module, qualified) if colon else _known(name)


def class_name(kind: Kind) -> str:
    """The name by which `find_class` finds `kind` in any run of the game. Raises `Problem`."""
    module = kind.__module__
    is_local = "<locals>" in kind.__qualname__
    if is_local or module.partition(".")[0] == "gameglue":
        alike = _called(kind.__name__)
        if alike == [kind]:
            return kind.__name__
        if is_local:
            raise Problem(
                f"{len(alike)} classes are called {kind.__name__}, and this one is defined in a function"
            )
    return f"{_main_name() if module == '__main__' else module}:{kind.__qualname__}"


def _called(name: str) -> list[Kind]:
    """The known classes of that name."""
    found: dict[tuple[str, str], Kind] = {}
    for kind in _every_kind(MonoBehaviour):
        if kind.__name__ == name:
            # A class that was made again, as hot reload does, replaces the previous one.
            found[kind.__module__, kind.__qualname__] = kind
    return list(found.values())


def _known(name: str) -> Kind:
    found = _called(name)
    if len(found) == 1:
        return found[0]
    if found:
        ways = " or ".join(f"{kind.__module__}:{kind.__qualname__}" for kind in found)
        raise Problem(f"several component classes are called {name!r}: write {ways}")
    names = sorted(
        {kind.__name__ for kind in _every_kind(MonoBehaviour) if not kind.__name__.startswith("_")}
    )
    module, dot, local = name.rpartition(".")
    if dot and _MODULE.fullmatch(module):
        raise Problem(f"a class in a module is written with a colon: {module}:{local}, not {name}")
    hint = near(name, names, "known are")
    raise Problem(f"no component class {name!r} is known{hint}\na class whose module is not imported yet is "
                  f"written as module:{name}")  # fmt: skip


def _in_module(module: str, qualified: str) -> Kind:
    if not _MODULE.fullmatch(module):
        raise Problem(f"{module!r} is no module's name; a component is written as module:Class")
    imported = sys.modules["__main__"] if module == _main_name() else None
    if imported is None:
        try:
            imported = importlib.import_module(module)
        except ModuleNotFoundError as error:
            folder = Path(sys.path[0] or ".")
            known = sorted(
                {path.stem for path in folder.glob("*.py")} | {m for m in sys.modules if "." not in m}
            )
            hint = near(module, known, "modules next to the game are") if error.name == module else ""
            raise Problem(f"module {module!r} cannot be imported: {error}{hint}") from error
        except Exception as error:
            raise Problem(f"module {module!r} fails when it is imported: {error!r}") from error
    found: object = imported
    for part in qualified.split("."):
        found = getattr(found, part, None)
    if isinstance(found, type) and issubclass(found, MonoBehaviour):
        return found
    kinds = [n for n, k in vars(imported).items() if isinstance(k, type) and issubclass(k, MonoBehaviour)]
    own = [n for n in kinds if vars(imported)[n].__module__ == imported.__name__]
    if found is not None:
        raise Problem(f"{module}:{qualified} is no class derived from MonoBehaviour")
    raise Problem(
        f"module {module!r} has no class {qualified!r}{near(qualified, own or kinds, 'its components are')}"
    )


def _every_kind(base: Kind) -> Iterator[Kind]:
    for kind in base.__subclasses__():
        yield kind
        yield from _every_kind(kind)


def _main_name() -> str:
    """The name that other modules import the running script by."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else "__main__"
