"""Members of the reference's classes: an extension of Griffe, and a hook of MkDocs.

The extension:

- An entry of a class's `Attributes:` section becomes the docstring of that attribute, so that it has an
  anchor of its own. So does an entry of `Args:` of a dataclass.
- A method that overrides one and has no docstring shows its base's.

The hook leaves out bases that have no page, and ends a strict build where a public member has no anchor.
"""

from __future__ import annotations

import logging
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from griffe import Class, Docstring, Extension, GriffeLoader, Module, load_extensions

_log = logging.getLogger("mkdocs.gameglue")
_HERE = Path(__file__).resolve().parent

_SECTION = r"^{}:\n((?:[ ]{{4}}.*\n?|\n)+)"
_ATTRIBUTES = re.compile(_SECTION.format("Attributes"), re.MULTILINE)
_ARGS = re.compile(_SECTION.format("Args"), re.MULTILINE)
_BASES = re.compile(r'<p class="doc doc-class-bases">\s*Bases: (.*?)</p>', re.DOTALL)
_ENTRY = re.compile(r"^[ ]{4}([\w, ]+): (.*(?:\n(?:[ ]{5,}.*)?$)*)", re.MULTILINE)


class Members(Extension):
    """Gives members their docstrings."""

    def on_class_members(self, *, cls: Class, **_: Any) -> None:
        """A class has been read."""
        if cls.docstring is None:
            return
        if section := _ATTRIBUTES.search(cls.docstring.value):
            self._give(cls, section[1])
            cls.docstring.value = _ATTRIBUTES.sub("", cls.docstring.value).strip()
        elif "dataclass" in cls.labels and (section := _ARGS.search(cls.docstring.value)):
            self._give(cls, section[1])

    def _give(self, cls: Class, section: str) -> None:
        for names, text in _ENTRY.findall(section):
            for name in names.split(", "):
                member = cls.members.get(name)
                if member is not None and member.docstring is None:
                    member.docstring = Docstring(" ".join(text.split()), parent=member)  # type: ignore[arg-type]

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """A package has been read."""
        for cls in _classes(pkg) if pkg.name in ("engine", "gameglue") else ():
            for name, member in cls.members.items():
                if member.is_alias or member.docstring is not None or name.startswith("_"):
                    continue
                for base in cls.mro():
                    overridden = base.members.get(name)
                    if overridden is not None and overridden.docstring is not None:
                        member.docstring = overridden.docstring
                        break


def _classes(scope: Module | Class) -> Iterator[Class]:
    for member in scope.members.values():
        if member.is_alias:
            continue
        if isinstance(member, Class):
            yield member
        if isinstance(member, Module | Class):
            yield from _classes(member)


def anchors() -> dict[str, dict[str, bool]]:
    """By page of the reference, the anchors that it must have, and whether they are documented."""
    reference = runpy.run_path(str(_HERE / "reference.py"))
    extensions = load_extensions(str(_HERE / "members.py"))
    loader = GriffeLoader(search_paths=[_HERE.parent], extensions=extensions)
    loader.load("engine")
    package = loader.load("gameglue")
    loader.resolve_aliases(implicit=True, external=False)
    found: dict[str, dict[str, bool]] = {}
    for page, (_, _, names) in reference["TOPICS"].items():
        on_page = found.setdefault(page, {})
        for name in names:
            public, kind = package[name], reference["named"](name)
            public = public.final_target if public.is_alias else public
            on_page[f"gameglue.{name}"] = public.docstring is not None
            if not public.is_class:
                continue
            left_out = {*reference["internal"](kind)}
            if unknown := left_out - public.all_members.keys():
                raise ValueError(f"INTERNAL names members that {name} does not have: {sorted(unknown)}")
            members = public.all_members
            if reference["is_component"](kind) and name != "MonoBehaviour":
                members = public.members
                left_out |= reference["fields_of"](kind).keys()
            for member, value in members.items():
                value = value.final_target if value.is_alias else value
                is_ours = value.canonical_path.startswith(("engine.", "gameglue."))
                if is_ours and not member.startswith("_") and member not in left_out:
                    on_page[f"gameglue.{name}.{member}"] = value.docstring is not None
    return found


def on_post_page(output: str, page: Any, config: Any) -> str:
    """MkDocs' hook: leave out bases of ours that no page describes."""
    return _BASES.sub(_with_links, output)


def _with_links(bases: re.Match[str]) -> str:
    codes = re.findall(r"<code>.*?</code>", bases[1], re.DOTALL)
    shown = [code for code in codes if 'title="engine.' not in code and 'title="gameglue.' not in code]
    return f'<p class="doc doc-class-bases">Bases: {", ".join(shown)}</p>' if shown else ""


def on_post_build(config: Any) -> None:
    """MkDocs' hook: warn of public members that have no anchor."""
    for page, expected in anchors().items():
        text = (Path(config.site_dir) / "reference" / f"{page}.html").read_text(encoding="utf-8")
        there = set(re.findall(r'\bid="([^"]+)"', text))
        for anchor in expected.keys() - there:
            _log.warning("reference/%s.md has no entry for %s", page, anchor)
