"""The chapter of examples: a hook of MkDocs that adds one page for each group of scripts.

A page shows each script's code, read when the site is built, and what it prints, which is kept in
`example_outputs.json`. Run as a program, this runs all examples and writes that file and their pictures.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OUTPUTS = Path(__file__).with_name("example_outputs.json")
PICTURES = ROOT / "docs" / "pages" / "examples"

GROUPS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "sprites-and-input": (
        "Sprites, input and sound",
        "Scripted input plays the part of the player. See"
        " [sprites and cameras](../guides/sprites-and-cameras.md) and [input](../guides/input.md).",
        (
            "move_a_sprite", "animate_a_sprite", "follow_with_a_camera", "pick_with_the_mouse",
            "label_and_button", "use_a_gamepad", "play_a_sound",
        ),
    ),
    "scenes-and-components": (
        "Scenes and components",
        "Objects, the time, files and tests. See [components](../guides/components.md) and"
        " [scenes and prefabs](../guides/scenes-and-prefabs.md).",
        (
            "wait_in_a_coroutine", "send_events", "spawn_a_prefab", "save_a_scene", "reload_a_level_file",
            "repeat_a_run", "step_without_a_window", "profile_frames",
        ),
    ),
    "3d-and-effects": (
        "3D and effects",
        "Meshes, particles, and effects by shaders and by networks. See [3D](../guides/3d.md) and"
        " [textures and image effects](../guides/textures-and-image-effects.md).",
        ("light_a_mesh", "emit_particles", "shade_the_picture", "filter_the_picture", "use_textures"),
    ),
    "inference-in-a-frame": (
        "Inference in a frame",
        "Networks inside a running game; no frame waits for them. See"
        " [requests within the frame's budget](../guides/frame-budget.md).",
        (
            "create_an_engine", "think_with_a_brain", "infer_every_frame", "keep_the_latest_request",
            "await_an_answer", "read_output_three_ways", "split_over_frames", "load_in_the_background",
            "use_a_command_buffer", "learn_while_playing", "imitate_a_player",
        ),
    ),
    "models-and-tensors": (
        "Models and tensors",
        "Workers, models and data, without a game around them. The topics are explained in"
        " [models and workers](../guides/models-and-workers.md) and"
        " [tensors and readback](../guides/tensors-and-readback.md).",
        (
            "whole_workflow", "inspect_a_model", "build_a_model", "edit_a_model", "give_inputs",
            "keep_an_output", "look_inside_a_model", "run_on_each_backend", "choose_a_backend",
            "warm_up_a_worker", "slice_by_budget", "convert_a_picture", "access_tensor_data",
            "define_an_operator", "schedule_a_job", "quantize_a_model", "serialize_a_model",
        ),
    ),
}  # fmt: skip
LOOPS = ("pygame_loop", "moderngl_window_loop", "arcade_loop")

VARYING = {"profile_frames", "run_on_each_backend", "choose_a_backend", "create_an_engine",
           "read_output_three_ways", "split_over_frames", "use_textures", "quantize_a_model",
           "access_tensor_data", "serialize_a_model"}  # fmt: skip
"""Examples whose output depends on the machine: it is not compared with what the page shows."""

PICTURED = ("animate_a_sprite", "follow_with_a_camera", "pick_with_the_mouse", "label_and_button",
            "light_a_mesh", "emit_particles", "shade_the_picture", "filter_the_picture")  # fmt: skip


def names() -> list[str]:
    """All examples, in the order of the pages."""
    return [name for _, _, members in GROUPS.values() for name in members]


def output_of(name: str, *, is_fresh: bool = True) -> str:
    """Run an example in a process of its own, in an empty folder; returns what it prints.

    is_fresh: as for `run_script`.
    """
    # Only here: the site is built without the tests.
    from tests.scripts import run_script

    environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    script = ROOT / f"demos/examples/{name}.py"
    with tempfile.TemporaryDirectory() as folder:
        done = run_script(script, folder=Path(folder), environment=environment, is_fresh=is_fresh)
    if done.returncode or "Traceback" in done.stderr:
        raise RuntimeError(f"{name}: {done.stderr}")
    return done.stdout


def pages() -> Iterator[tuple[str, str]]:
    """Paths below the pages' folder, and texts in Markdown."""
    outputs = json.loads(OUTPUTS.read_text(encoding="utf-8"))
    index = [
        "# Examples",
        "",
        "Short scripts, one idea each. They need no display, sound device or",
        "graphics card, and end by themselves: `python demos/examples/NAME.py` in a clone.",
        "",
    ]
    for path, (title, about, members) in GROUPS.items():
        text = [f"# {title}", "", about, ""]
        index += [f"## [{title}]({path}.md)", ""]
        for name in members:
            heading, code = _shown(ROOT / f"demos/examples/{name}.py")
            words = _words(name)
            sentence = heading.removeprefix(f"{words}: ")
            entry = f"[{words}]({path}.md#{name.replace('_', '-')})"
            # Where the sentence begins with the title, the title is the link.
            if sentence == heading and heading.startswith(words):
                index.append(f"- {entry}{heading.removeprefix(words)}")
            else:
                index.append(f"- {entry}: {sentence[0].upper()}{sentence[1:]}")
            text += [f"## {words} {{#{name.replace('_', '-')}}}", "", heading, ""]
            text += _block(f"demos/examples/{name}.py", code)
            if name in PICTURED:
                text += [f"![{words}]({name}.png)", ""]
            text += ["Output, for example:" if name in VARYING else "Output:", ""]
            text += ["```text", outputs[name].rstrip(), "```", ""]
        index.append("")
        yield f"examples/{path}.md", "\n".join(text)
    text = [
        "# Loops of your own",
        "",
        "The engine in frame loops of other libraries, step by step in"
        " [your own loop](../guides/own-loop.md). They open a window and show the picture below.",
        "",
    ]
    index += ["## [Loops of your own](loops.md)", ""]
    for name in LOOPS:
        heading, code = _shown(ROOT / f"demos/loops/{name}.py")
        words = _words(name)
        index.append(f"- [{words}](loops.md#{name.replace('_', '-')}): {heading}")
        text += [f"## {words} {{#{name.replace('_', '-')}}}", "", heading, ""]
        text += _block(f"demos/loops/{name}.py", code)
        if (PICTURES / f"{name}.png").exists():
            text += [f"![{words}: a digit that a pen writes, and ten bars]({name}.png)", ""]
    text += ["The strokes come from a module that all three use:", ""]
    text += _block("demos/loops/pen.py", (ROOT / "demos/loops/pen.py").read_text(encoding="utf-8"))
    yield "examples/loops.md", "\n".join(text)
    yield "examples/index.md", "\n".join([*index, ""])


def on_files(files: Any, config: Any) -> Any:
    """MkDocs' hook: add the generated pages."""
    # The tests read the pages without MkDocs.
    from mkdocs.structure.files import File

    for path, text in pages():
        files.append(File.generated(config, path, content=text))
    return files


def _words(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _shown(path: Path) -> tuple[str, str]:
    """A script's first line of documentation, and its code."""
    code = path.read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(code)) or "").partition("\n")[0], code


def _block(title: str, code: str) -> list[str]:
    return [f'```python title="{title}"', code.rstrip(), "```", ""]


# Run in a process of its own: an example whose app saves a picture of its last frame.
_PICTURE = """
import runpy, sys
from gameglue import App

def run(app, frames):
    App.runner = None
    app.run(frames)
    app.screenshot(sys.argv[2])
    App.runner = run

App.runner = run
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def keep_picture(name: str) -> None:
    """Write the last frame of an example as a small PNG beside the pages."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "picture.png")
        script = str(ROOT / f"demos/examples/{name}.py")
        subprocess.run([sys.executable, "-c", _PICTURE, script, str(file)], cwd=folder, env=environment,
                       stdout=subprocess.DEVNULL, check=True)  # fmt: skip
        keep_small(file, PICTURES / f"{name}.png")


def keep_loop_picture(name: str) -> None:
    """Write what a loop's window shows once its pen has written a 1; needs a display, such as Xvfb."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "picture.png")
        command = [sys.executable, "-m", f"demos.loops.{name}", "--type", "cpu", "--frames", "290"]
        command += ["--screenshot", str(file)]
        subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
        keep_small(file, PICTURES / f"{name}.png")


def keep_small(file: Path, target: Path) -> None:
    """Write a picture with a palette of few colours."""
    # Building the site needs no Pillow.
    from PIL import Image

    from gameglue.cli.animation import with_few_colors

    with Image.open(file) as picture:
        with_few_colors(picture.convert("RGB"), 64).save(target, optimize=True)


def main() -> None:
    """Write the outputs and the pictures; `xvfb-run` gives the loops a display."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    outputs = {name: output_of(name) for name in names()}
    OUTPUTS.write_text(json.dumps(outputs, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for name in PICTURED:
        keep_picture(name)
    for name in LOOPS:
        keep_loop_picture(name)


if __name__ == "__main__":
    main()
