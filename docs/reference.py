"""The reference, generated when the site is built: a hook of MkDocs that adds pages below `reference/`.

Signatures and docstrings are mkdocstrings' work; what comes from declarations (fields of components, the
command line, operators, exceptions, environment variables) is written here from those declarations. The
reference's other pages (`index.md`, `file-formats.md`) are files among the pages.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import gameglue
from engine.api import operator_support
from engine.base.errors import EngineError
from gameglue import MonoBehaviour
from gameglue.cli import COMMANDS, build_parser
from gameglue.cli.environment import VARIABLES
from gameglue.errors import HookWarning
from gameglue.scripting.fields import MISSING, Field, fields_of
from gameglue.scripting.hooks import HOOKS

TOPICS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "models": (
        "Models and workers",
        "Load a model, run it, and read what it says.",
        (
            "ModelLoader", "ModelAsset", "Model", "Layer", "Input", "Output", "Loading", "ProgressCallback",
            "Worker", "WorkerOutput", "Schedule", "WorkerMemory", "PlanReport", "StepCosts", "StepCost",
            "BackendType", "BackendChoice", "BACKEND_CHOICES", "default_backend_choice",
            "resolve_backend_choice", "open_worker", "IWorker", "WorkerFactory", "background_planning",
        ),
    ),
    "tensors": (
        "Tensors",
        "What goes into a worker and comes out of it.",
        (
            "Tensor", "TensorShape", "DynamicTensorShape", "TensorData", "CPUTensorData",
            "ComputeTensorData", "TextureTensorData",
        ),
    ),
    "textures": (
        "Textures and tensors",
        "Pictures become tensors, and tensors pictures.",
        ("TextureConverter", "TextureTransform", "TensorLayout", "ChannelSwizzle", "CoordOrigin",
         "ImageNetwork"),
    ),
    "devices": (
        "Devices",
        "What models run on.",
        ("GLDevice", "CLDevice", "SystemInfo"),
    ),
    "jobs": (
        "Jobs, command buffers, own operators",
        "Native jobs, recorded commands, and operators written with NumPy.",
        (
            "JobSystem", "JobHandle", "Job", "job", "CommandBuffer", "Graphics", "numpy_operator", "operator",
            "remove_operator", "Observer",
        ),
    ),
    "app": (
        "App and program",
        "The frame loop, and the main program of a game.",
        (
            "App", "host.clock.Time", "host.frame.Frame", "Phase", "play", "PlayOptions", "ReportCallback",
            "ComponentError", "Resources", "HotReload", "ReloadableEffect", "ReloadableWorker",
            "freeze_support",
        ),
    ),
    "inference": (
        "Inference within the frame",
        "Requests that run within each frame's budget.",
        ("Brain", "InferenceQueue", "InferenceRequest", "QueueStats", "WorkerStats"),
    ),
    "learning": (
        "Learning",
        "Networks that learn while the game runs.",
        ("DenseNetwork", "EvolutionStrategy"),
    ),
    "scenes": (
        "Scenes and objects",
        "What a game is made of.",
        ("Scene", "GameObject", "Transform", "Prefab", "Vec3", "Quaternion", "Route"),
    ),
    "scripting": (
        "Components and scripts",
        "Behaviour of objects: hooks, fields, events.",
        ("MonoBehaviour", "Range", "require_component", "Event"),
    ),
    "coroutines": (
        "Coroutines",
        "What a coroutine or an `async def` waits for.",
        (
            "Coroutine", "YieldInstruction", "next_frame", "seconds", "WaitForSeconds",
            "WaitForSecondsRealtime", "WaitForFixedUpdate", "WaitForEndOfFrame", "WaitUntil", "WaitWhile",
            "WaitUntilDone",
        ),
    ),
    "graphics": (
        "Graphics",
        "Pictures, sprites, drawing, and effects.",
        (
            "graphics.graphics.Graphics", "Texture", "RenderTarget", "Color", "Palette", "with_alpha",
            "Canvas",
            "Gui", "Page", "Rect", "Camera", "Camera2D", "Renderer", "SpriteRenderer", "SpriteSheet",
            "SpriteAnimator", "AnimationClip", "TextRenderer", "LineRenderer", "TileMap", "ParticleSystem",
            "Particles", "ImageEffect", "Effect", "WebCamTexture",
        ),
    ),
    "graphics-3d": (
        "Graphics in 3D",
        "Meshes, lights and a camera for them.",
        ("Camera3D", "Mesh", "MeshRenderer", "DirectionalLight", "AmbientLight", "ParticleSystem3D"),
    ),
    "input": (
        "Input",
        "Keys, mouse, gamepads, actions, and recordings of them.",
        (
            "InputState", "InputActions", "InputScript", "InputRecording", "KeyEvent", "MouseMoved",
            "MouseButton", "GamepadConnected", "GamepadDisconnected", "GamepadButton", "GamepadAxis",
            "PAD_AXES", "PAD_BUTTONS", "LEFT", "MIDDLE", "RIGHT",
        ),
    ),
    "audio": (
        "Sound",
        "Sounds, their sources, and who hears them.",
        ("Audio", "AudioClip", "AudioSource", "AudioListener"),
    ),
    "profiling": (
        "Profiling and inspection",
        "Where a frame's time goes, and what a running game holds.",
        ("Profiler", "ProfileRecording", "FrameReport", "Inspector"),
    ),
}  # fmt: skip
"""Pages with classes and functions: name, title, first sentence, and the public names on it. A name with dots
is one that games meet as an attribute, `self.time` for instance, and do not import.
"""

INTERNAL: dict[str, tuple[str, ...]] = {
    "CLDevice": ("calls", "failed", "guarded", "allocate", "collect", "keeps_times",
                 "pending", "set_arguments", "stores"),
    "CPUTensorData": ("address", "elements", "add_reader", "keep_in_place", "set_writer", "readers",
                      "to_write", "writer"),
    "GLDevice": ("borrow_shared", "call_later", "collect", "create_shared", "give_back_shared", "staging"),
    "Inspector": ("dispose", "draw", "take"),
    "Model": ("constant_factories",),
    "Profiler": ("add_phase", "on_change"),
    "ProfileRecording": ("begin_frame", "drawn", "end_frame", "hook", "timed", "tracks"),
    "Tensor": ("available_data", "for_job", "mark_changed", "replace_data"),
    "TensorData": ("available_data", "concrete", "for_job"),
    "graphics.graphics.Graphics": ("apply_image_effects", "device", "draw_cameras", "draw_gui",
                                   "follow_window_size", "fonts", "gui", "make_current", "mark", "pending",
                                   "present", "release", "request_screenshot", "surface", "white", "wrap"),
    "host.clock.Time": ("begin_frame", "fixed", "game", "hold", "real"),
    "InputState": ("begin_frame", "filter"),
}  # fmt: skip
"""Members that other packages of the engine and the host call: games have no use for them, so the reference
leaves them out, also where a class inherits them."""

COMPONENTS = "components"
_FIELD_COLUMNS = ("field", "type", "default", "unit", "range", "meaning")


def pages() -> Iterator[tuple[str, str]]:
    """Every generated page: its path among the site's pages, and its Markdown."""
    for name, (title, sentence, names) in TOPICS.items():
        text = _topic(title, sentence, names)
        yield f"reference/{name}.md", text + hooks() if name == "scripting" else text
    yield f"reference/{COMPONENTS}.md", components()
    yield "reference/command-line.md", command_line()
    yield "reference/operators.md", operators()
    yield "reference/errors.md", errors()
    yield "reference/environment.md", environment()


def on_files(files: Any, config: Any) -> Any:
    """MkDocs' hook: add the generated pages."""
    # The documentation's tests read the pages without MkDocs.
    from mkdocs.structure.files import File

    for path, text in pages():
        files.append(File.generated(config, path, content=text))
    return files


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table's lines, without the columns in which nothing stands."""
    shown = [k for k in range(len(columns)) if any(row[k] for row in rows)]
    lines = [columns, ["---"] * len(columns), *rows]
    return ["| " + " | ".join(_cell(line[k]) for k in shown) + " |" for line in lines]


def _cell(text: str) -> str:
    """A cell on one line. Bars mean themselves in code, and end cells elsewhere."""
    words = re.split("(`[^`]*`)", " ".join(text.split()))
    return "".join(word if word.startswith("`") else word.replace("|", "\\|") for word in words)


# -- classes and functions ----------------------------------------------------------------------


def _topic(title: str, sentence: str, names: Iterable[str]) -> str:
    return "\n".join([f"# {title}\n", f"{sentence}\n", *map(_entry, names)])


def hooks() -> str:
    """The table of hooks."""
    rows = []
    for hook in HOOKS.values():
        signature = f"{hook.name}({', '.join(('self', *hook.parameters))})"
        rows.append((f"`{signature}`", "yes" if hook.may_wait else "", hook.doc))
    text = [
        "",
        "## Hooks",
        "",
        "Methods that the host calls where a component defines them. Those that may wait can be generators "
        "or `async def`; one that waits is called again in the frame after its last call has ended.",
        "",
    ]
    return "\n".join([*text, *_table(("hook", "may wait", "when it is called"), rows), ""])


def named(name: str) -> Any:
    """What a name of `TOPICS` stands for."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(f"gameglue.{module}") if module else gameglue, attribute)


def internal(kind: type) -> list[str]:
    """The members of a class that are left out."""
    hidden = {named(name): members for name, members in INTERNAL.items()}
    return sorted({member for base in kind.__mro__ for member in hidden.get(base, ())})


def _entry(name: str) -> str:
    """A public name as mkdocstrings is asked for it."""
    found = named(name)
    options: list[str] = []
    left_out = internal(found) if isinstance(found, type) else []
    fields: list[str] = []
    if is_component(found) and found is not MonoBehaviour:
        # All that it inherits is on the pages of its bases; its fields are in a table.
        options = ["inherited_members: false"]
        fields = [field for field in fields_of(found) if field in vars(found).get("__annotations__", {})]
    if "." in name:
        options.append("merge_init_into_class: false")  # games do not make one
    if left_out or fields:
        options += ["filters:", "  - '!^_'", f"  - '!^({'|'.join(left_out + fields)})$'"]
    lines = [f"::: gameglue.{name}"]
    if options:
        lines += ["    options:", *(f"      {line}" for line in options)]
    if fields:
        lines.append(f"\nFields: [{name}]({COMPONENTS}.md#{name.lower()})")
    return "\n".join(lines) + "\n"


def is_component(found: object) -> bool:
    """True for a component class."""
    return isinstance(found, type) and issubclass(found, MonoBehaviour)


# -- components ---------------------------------------------------------------------------------


def components() -> str:
    """Every component with a table of its serialized fields."""
    text = [
        "# Components",
        "",
        "The serialized fields of every component: what a scene file, a prefab, `add_component` and the "
        "inspector set. *units* are units of the world. Methods are on the page that is linked.",
        "",
    ]
    for page, (_, _, names) in TOPICS.items():
        for name in names:
            kind = named(name)
            if is_component(kind) and kind is not MonoBehaviour:
                text += _component(name, kind, page)
    return "\n".join(text)


def _component(name: str, kind: type[MonoBehaviour], page: str) -> list[str]:
    first = (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")
    text = [f"## {name}", "", f"{first} [Methods]({page}.md#gameglue.{name})", ""]
    fields = fields_of(kind)
    base = next((b for b in kind.__mro__[1:] if is_component(b) and fields_of(b)), None)
    own = [f for f in fields.values() if base is None or f.name not in fields_of(base)]
    if own:
        text += [*_table(_FIELD_COLUMNS, [_field_row(field) for field in own]), ""]
    if base is not None:
        text += [f"Also the fields of [{base.__name__}](#{base.__name__.lower()}).", ""]
    elif not own:
        text += ["It has no fields of its own.", ""]
    return text


def _field_row(field: Field) -> tuple[str, ...]:
    told = _told_of_fields(field.owner).get(field.name, "")
    default = "required" if field.default is MISSING else f"`{_literal(field.default)}`"
    limits = field.range
    unit = limits.unit if limits is not None else ""
    span = ""
    if limits is not None and (limits.low, limits.high) != (float("-inf"), float("inf")):
        span = str(limits).removesuffix(unit).strip()
    return (f"`{field.name}`", f"`{_type_of(field)}`", default, unit, span, told)


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _type_of(field: Field) -> str:
    """A field's type as its class writes it, where readers know the names in it."""
    written = inspect.get_annotations(field.owner)[field.name]
    tree = ast.parse(str(written), mode="eval").body
    if isinstance(tree, ast.Subscript) and ast.unparse(tree.value) == "Annotated":
        assert isinstance(tree.slice, ast.Tuple)
        tree = tree.slice.elts[0]
    known = {*gameglue.__all__, *dir(__builtins__), *vars(__import__("builtins"))}
    known |= {"Literal", "Sequence", "Path", "ndarray", "np", "Any"}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if names <= known:
        return ast.unparse(tree).replace("'", '"').replace("np.ndarray", "ndarray")
    return _plain(field.type_name)


def _plain(name: str) -> str:
    """A resolved type without modules: `engine.runtime.tensor.Tensor | None` as `Tensor | None`."""
    tree = ast.parse(name, mode="eval")

    class Shorten(ast.NodeTransformer):
        def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
            return ast.Name(node.attr)

    return ast.unparse(Shorten().visit(tree)).replace("'", '"')


def _told_of_fields(owner: type) -> dict[str, str]:
    """The text below each field in its class, on one line."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, str] = {}
    for field, below in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
            if isinstance(below.value, ast.Constant) and isinstance(field.target, ast.Name):
                found[field.target.id] = " ".join(str(below.value.value).split())
    return found


# -- the command line ---------------------------------------------------------------------------


def command_line() -> str:
    """Every command with its arguments, from the command line's own parser."""
    # argparse wraps for the terminal that it finds.
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "90"
    try:
        return "\n".join(_commands())
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


def _commands() -> Iterator[str]:
    parser = build_parser()
    yield "# Command line\n"
    yield "`gameglue COMMAND --help` prints what is here. Exit codes: 0, 2 for what cannot be done, and 130"
    yield "after Ctrl-C; a game that is played ends with 1 if a component raised.\n"
    rows = [(f"[`gameglue {name}`](#{name})", line) for name, (_, line) in COMMANDS.items()]
    yield from _table(("command", "what it does"), rows)
    yield "\nOptions of every command:\n"
    yield from _arguments(parser)
    (subparsers,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    for name, command in subparsers.choices.items():
        yield f"\n## {name}\n"
        if command.description:
            yield f"{_escaped(command.description)}\n"
        yield f"```text\n{command.format_usage().removeprefix('usage: ').rstrip()}\n```\n"
        yield from _arguments(command)
        if command.epilog:
            yield f"\n```text\n{command.epilog.rstrip()}\n```"
    yield ""


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    actions = [
        action
        for action in parser._actions
        if action.help != argparse.SUPPRESS
        and not isinstance(action, argparse._HelpAction)
        and not isinstance(action, argparse._SubParsersAction)
    ]
    if not actions:
        return
    formatter = parser._get_formatter()
    yield from _table(
        ("argument", "meaning"),
        [
            (
                f"`{formatter._format_action_invocation(action)}`",
                _escaped(formatter._expand_help(action) if action.help else ""),
            )
            for action in actions
        ],
    )


def _escaped(text: str) -> str:
    """Help texts are plain: `<` and `*` mean themselves."""
    return text.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


# -- operators ----------------------------------------------------------------------------------


def operators() -> str:
    """Every operator with the opset versions and backends, as `gameglue operators` tells."""
    rows = operator_support.supported()
    native = sum(row.on("gl_compute") == "native" for row in rows)
    text = [
        "# Operators",
        "",
        f"{len(rows)} operators, {native} of them on every backend. `gameglue operators` prints this table "
        "for the installed version.",
        "",
        "*native*: the backend runs the operator. *fallback*: the CPU runs it, and its data is transferred.",
        "",
        *(f"- {note}" for note in operator_support.type_notes()),
        "",
    ]
    for domain in dict.fromkeys(row.domain for row in rows):
        text += [f"## {domain or 'ai.onnx'}", ""]
        mine = [row for row in rows if row.domain == domain]
        cells = [(f"`{row.name}`", row.versions, *map(row.on, operator_support.BACKENDS)) for row in mine]
        text += [*_table(("operator", "opsets", *operator_support.BACKENDS.values()), cells), ""]
    text += [_NOT_SUPPORTED]
    if missing := operator_support.absent():
        names = ", ".join(f"`{row.title}`" for row in missing)
        text += [f"Nor are these operators of the installed `onnx` package: {names}.", ""]
    return "\n".join(text)


_NOT_SUPPORTED = """\
## Beyond ONNX

`com.microsoft` holds what onnxruntime's CPU provider runs, and what its optimiser, its quantiser and the
model builder of onnxruntime-genai write; `ai.onnx` includes a few of ONNX's first drafts.

Quantised layers compute with the integers in the file. onnxruntime may round what it multiplies them with to
8 bits (`accuracy_level` 4 of `MatMulNBits` and `QMoE`), so its results can differ by a few per cent.

## Not supported

- Whole searches (`BeamSearch`, `GreedySearch`, `Sampling`): export the decoder, and choose the tokens in the
  game.
- `AttnLSTM`, `GatherPacked`, `MatMulFpQ4`, `SparseToDenseMatMul`, `VarlenNGramHashMapping` and
  `WordConvEmbedding`.
- The domain `com.microsoft.nchwc`: files that onnxruntime saved at optimisation level ALL hold weights in an
  order for one type of processor. Save them at level EXTENDED.

When a model cannot be loaded, the error lists every operator that is missing, with the exporter's option that
avoids it where there is one. [Operators of your own](../guides/custom-operators.md) shows how to supply one.
"""


# -- errors -------------------------------------------------------------------------------------


def errors() -> str:
    """Every exception with cause and cure, from the classes' docstrings."""
    text = [
        "# Errors",
        "",
        "All exceptions that gameglue raises on purpose derive from `EngineError`; those of the game side "
        "derive from `GameError`, too. A message names the file, layer, tensor or field, what is wrong, and "
        "what to do.",
        "",
    ]
    rows = []
    for kind in [*_with_subclasses(EngineError), HookWarning]:
        cause, _, cure = (inspect.getdoc(kind) or "").partition("\n\n")
        bases = ", ".join(base.__name__ for base in kind.__bases__)
        name = f'<span id="{kind.__name__}">`{kind.__name__}`</span><br>({bases})'
        rows.append((name, cause, cure))
    return "\n".join([*text, *_table(("class (base classes)", "cause", "what to do"), rows), ""])


def _with_subclasses(kind: type[EngineError]) -> Iterator[type[EngineError]]:
    """A public class and the public ones that derive from it, bases first."""
    yield kind
    for other in kind.__subclasses__():
        is_public = getattr(gameglue, other.__name__, None) is other or other.__module__.endswith(".errors")
        if is_public and other.__bases__[0] is kind:
            yield from _with_subclasses(other)


# -- environment variables ----------------------------------------------------------------------


def environment() -> str:
    """Every environment variable that gameglue reads."""
    text = [
        "# Environment variables",
        "",
        "`gameglue doctor` shows which of them are set.",
        "",
    ]
    rows = [(f"`{v.name}`", v.default or "none", v.meaning) for v in VARIABLES]
    return "\n".join([*text, *_table(("variable", "default", "meaning"), rows), ""])


if __name__ == "__main__":
    for path, content in pages():
        sys.stdout.write(f"==== {path}\n{content}\n")
