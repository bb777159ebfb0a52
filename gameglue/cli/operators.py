"""`gameglue operators`: which operators the engine has, and where each of them runs."""

from __future__ import annotations

import argparse
import difflib

from engine.api import operator_support
from engine.api.operator_support import Support
from engine.backends.table import BACKENDS
from engine.base.errors import InputError
from gameglue.cli.backends import add_backend_options, choice_of
from gameglue.cli.console import add_json_option, output, paragraph, print_json, table
from gameglue.inference.backend_choice import BackendChoice, matching_choices


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, line: str) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        name,
        help=line,
        description=paragraph(
            "List the supported operators with their opset versions, and how",
            "each backend runs them: native, fallback (on the CPU) or refused. With names, only those,",
            "including unsupported ONNX operators among them.",
        ),
        epilog="examples:\n  gameglue operators\n  gameglue operators conv gridsample\n"
        "  gameglue operators --domain ai.onnx.ml --backend gpu_compute",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="name of an operator (case-insensitive)")
    add_backend_options(parser, "all of them")
    parser.add_argument("--domain", help="only operators of this domain; ai.onnx is ONNX's own")
    parser.add_argument("--markdown", action="store_true", help="print one row per domain, as Markdown")
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the table."""
    if arguments.markdown:
        print(operator_support.markdown())
        return 0
    rows = chosen_rows(arguments.names, arguments.domain)
    names = [engine_name(choice) for choice in matching_choices(choice_of(arguments))]
    if arguments.json:
        print_json(
            [
                {
                    "domain": row.domain or "ai.onnx",
                    "name": row.name,
                    "opsets": row.versions,
                    "backends": {name: row.on(name) for name in names},
                    "note": row.note,
                }
                for row in rows
            ]
        )
        return 0
    console = output()
    columns = ("operator", "opsets", *(operator_support.BACKENDS[name] for name in names))
    console.print(table(columns, [(row.title, row.versions, *map(row.on, names)) for row in rows]))
    console.print()
    for note in (*dict.fromkeys(row.note for row in rows if row.note), *operator_support.type_notes()):
        console.print(note, markup=False)
    return 0


def chosen_rows(names: list[str], domain: str | None) -> list[Support]:
    """The rows that a command line names; `InputError` with likely names for an unknown one."""
    rows = operator_support.supported()
    known = [*rows, *operator_support.absent()]
    if domain is not None:
        wanted = "" if domain == "ai.onnx" else domain
        domains = sorted({row.domain or "ai.onnx" for row in known})
        rows, known = ([row for row in group if row.domain == wanted] for group in (rows, known))
        if not known:
            raise InputError(f"there is no operator of the domain {domain!r}; domains: {', '.join(domains)}")
    if not names:
        return rows
    titles = {title: row for row in known for title in (row.title.lower(), row.name.lower())}
    for name in names:
        if name.lower() not in titles:
            likely = difflib.get_close_matches(name.lower(), titles, n=3)
            hint = ", ".join(dict.fromkeys(titles[title].title for title in likely))
            raise InputError(f"ONNX has no operator {name!r}" + (f"; did you mean {hint}?" if hint else ""))
    return [row for row in known if {row.name.lower(), row.title.lower()} & {n.lower() for n in names}]


def engine_name(choice: BackendChoice) -> str:
    """The engine's own name of a backend."""
    return next(
        entry.name
        for entry in BACKENDS
        if entry.backend_type is choice.backend and choice.device in (None, entry.device)
    )
