"""What the commands print and write, in this process, on the CPU backend; onnx and onnxruntime judge."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

from engine import SystemInfo, Worker
from gameglue.cli import bench_model, build_parser, main
from gameglue.cli.bench_model import agreement
from gameglue.cli.console import CompileProgress
from gameglue.cli.demos import Demo, demos_folder, find_demos
from gameglue.graphics.context import how_to_get_opengl
from gameglue.profiling.benchmark_cases import infer
from tests.graphs import node, proto
from tests.peer import open_session

ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "assets" / "digits" / "digits.onnx"
Capture = pytest.CaptureFixture[str]
RunChild = Callable[..., str]

BARE = SystemInfo(
    cpu_name="cpu",
    cpu_cores=1,
    cpu_features=(),
    operating_system="system",
    gl=None,
    gl_limits=None,
    gl_reason="no libEGL",
    gl_compute_reason="no libEGL",
    gl_pixel_reason="no libEGL",
    cl_devices=(),
    cl_reason="no platform",
    cl_refused=(),
)
"""A machine without OpenGL and OpenCL."""


def expected(image: np.ndarray) -> np.ndarray:
    """What onnxruntime says to a picture."""
    session = open_session(DIGITS)
    (probabilities,) = session.run(None, {"image": image})
    return np.asarray(probabilities)


def test_list_shows_each_demo_with_its_first_line(capsys: Capture) -> None:
    assert main(["list"]) == 0
    printed = capsys.readouterr().out
    assert "digits" in printed
    assert "Draw a digit with the mouse; a network classifies it in every frame." in printed
    assert "play one with:\n  gameglue play " in printed


def test_demos_are_folders_with_a_main(tmp_path: Path) -> None:
    for name, text in (("pong", '"""Two paddles.\n\nMore."""\n'), ("quiet", "x = 1\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "main.py").write_text(text, encoding="utf-8")
    (tmp_path / "not_a_demo").mkdir()
    found = find_demos(tmp_path)
    assert [(demo.name, demo.description) for demo in found] == [("pong", "Two paddles."), ("quiet", "")]


def test_a_demo_that_another_package_hides_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"not gameglue's own .*elsewhere"):
        Demo("digits", "", tmp_path).load()
    assert Demo("digits", "", demos_folder() / "digits").load().__name__ == "build"


def test_run_gives_the_outputs_of_the_given_inputs(tmp_path: Path, capsys: Capture) -> None:
    image = np.random.default_rng(5).random((3, 1, 28, 28)).astype(np.float32)
    np.save(tmp_path / "image.npy", image)
    saved = tmp_path / "new" / "out.npz"
    command = ["run", str(DIGITS), "--dim", "batch=3", "--input", f"image={tmp_path / 'image.npy'}"]
    assert main([*command, "--output", str(saved)]) == 0
    printed = capsys.readouterr().out
    assert "probabilities" in printed
    assert "(3, 10)" in printed
    with np.load(saved) as outputs:
        assert outputs.files == ["probabilities"]
        np.testing.assert_allclose(outputs["probabilities"], expected(image), atol=1e-5)


def test_random_inputs_repeat_with_their_seed(tmp_path: Path) -> None:
    results: list[np.ndarray] = []
    for seed in (1, 1, 2):
        file = tmp_path / f"{len(results)}.npz"
        assert main(["run", "digits", "--seed", str(seed), "--output", str(file)]) == 0
        results.append(np.load(file)["probabilities"])
    assert np.array_equal(results[0], results[1])
    assert not np.array_equal(results[0], results[2])


def test_run_takes_and_shows_sequences_and_text(tmp_path: Path, capsys: Capture) -> None:
    text = """<ir_version: 9, opset_import: ["": 18]>
    g (seq(float[n]) parts, string[2] words) => (float[m] all, seq(float[n]) more, string[2] same) {
        all = ConcatFromSequence<axis = 0>(parts)
        more = SequenceInsert(parts, all)
        same = Identity(words)
    }"""
    model, parts, out = tmp_path / "net.onnx", tmp_path / "parts.npz", tmp_path / "out.npz"
    model.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    np.savez(parts, np.ones(2, np.float32), np.zeros(1, np.float32))
    np.save(tmp_path / "words.npy", np.array(["one", "two"]))
    given = ["--input", f"parts={parts}", "--input", f"words={tmp_path / 'words.npy'}"]
    assert main(["run", str(model), *given, "--output", str(out)]) == 0
    assert "'one', 'two'" in capsys.readouterr().out
    with np.load(out) as saved:
        assert saved["all"].tolist() == saved["more[2]"].tolist() == [1, 1, 0]
        assert saved["same"].tolist() == ["one", "two"]


def test_given_inputs_set_named_dimensions(tmp_path: Path, capsys: Capture) -> None:
    source = proto(
        [node("Add", ["a", "b"], ["y"])],
        {"a": ("float32", ["n", 2]), "b": ("float32", ["n", "m"])}, {"y": ("float32", ["n", 2])},
    )  # fmt: skip
    (tmp_path / "net.onnx").write_bytes(source)
    np.save(tmp_path / "a.npy", np.ones((5, 2), np.float32))
    command = ["run", str(tmp_path / "net.onnx"), "--input", f"a={tmp_path / 'a.npy'}"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "b     float32  (5, 1)" in printed
    assert main([*command, "--dim", "n=3"]) == 2
    assert "input 'a' needs float32 (3, 2), got shape (5, 2)" in capsys.readouterr().err


def test_an_empty_optional_is_shown(tmp_path: Path, capsys: Capture) -> None:
    text = """<ir_version: 9, opset_import: ["" : 18]>
    net (optional(float[3]) x) => (bool y) { y = OptionalHasElement(x) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "net.onnx")
    assert main(["run", str(tmp_path / "net.onnx")]) == 0
    assert re.search(r"^x +no element", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.long
def test_warmup_compiles_ahead_and_goes_on_after_a_failure(
    tmp_path: Path, capsys: Capture, run_child: RunChild
) -> None:
    code = """
from engine.device import native
from gameglue.cli import main
print(main(["warmup", "digits"]), native.process_store().compilations)
"""
    cache = {"GAMEGLUE_CACHE_DIR": str(tmp_path / "cache")}
    cold, warm = (run_child(code, **cache).split()[-2:] for _ in range(2))
    assert cold[0] == warm[0] == "0"
    assert int(cold[1]) > 0
    assert warm[1] == "0", "the second start finds everything there"
    assert main(["warmup", "no.onnx", "digits"]) == 2
    shown = capsys.readouterr()
    assert "no.onnx on cpu: there is no model" in shown.err
    assert "digits" in shown.out


def test_inspect_tells_what_the_file_holds_and_what_the_passes_did(capsys: Capture) -> None:
    counts = Counter(node.op_type for node in onnx.load(DIGITS).graph.node)
    assert main(["inspect", "digits", "--backend", "cpu", "--layers"]) == 0
    printed = capsys.readouterr().out
    assert "image: float32 (batch, 1, 28, 28)" in printed
    assert "probabilities: float32 (batch, 10)" in printed
    for name, count in counts.items():
        assert f"{count} {name}" in printed
    before = counts.total()
    after = before - counts["BatchNormalization"]
    assert f"{before} -> {after} layers" in printed
    assert f"layers after the passes: {after}" in printed
    assert "everything runs there" in printed
    assert "gpu_pixel" not in printed


def test_inspect_says_why_a_backend_is_missing(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemInfo, "query", lambda: BARE)
    assert main(["inspect", "digits"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("not here: no libEGL") == 2
    assert printed.count("not here: no platform") == 1


def test_bench_compares_with_onnxruntime(capsys: Capture) -> None:
    pytest.importorskip("onnxruntime")
    assert main(["bench", "digits", "--backend", "cpu", "--runs", "3", "--dim", "batch=2"]) == 0
    printed = capsys.readouterr().out
    assert "image (2, 1, 28, 28)" in printed
    assert "medians of 3" in printed
    (row,) = [line.split() for line in printed.splitlines() if line.startswith("cpu")]
    median, fastest, ratio, difference = (float(row[i]) for i in (1, 2, 3, 5))
    assert 0.0 < fastest <= median
    assert ratio > 0.0
    assert difference < 1e-5


def layer_rows(printed: str) -> list[list[str]]:
    lines = printed.splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith("layer "))
    return [line.split() for line in lines[first + 1 : lines.index("", first)]]


def test_bench_shows_the_time_of_each_layer(capsys: Capture) -> None:
    pytest.importorskip("onnxruntime")
    command = "bench digits --layers --backend cpu --runs 2 --dim batch=2".split()
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "image (2, 1, 28, 28)" in printed
    rows = layer_rows(printed)
    assert Counter(row[1] for row in rows) == {
        "Conv+Relu+MaxPool": 3, "Transpose": 1, "Gemm+Relu": 1, "Gemm": 1, "Softmax": 1,
    }  # fmt: skip
    (softmax,) = [row for row in rows if row[1] == "Softmax"]
    assert softmax[2:4] == ["2x10", "softmax"]
    ours = [float(row[4]) for row in rows]
    assert ours == sorted(ours, reverse=True)
    assert sum(float(row[5].rstrip("%")) for row in rows) == pytest.approx(100, abs=1)
    assert all(float(row[6]) >= 0.0 and row[8] == "x" for row in rows if row[1] != "Transpose")
    (total,) = [line.split() for line in printed.splitlines() if line.startswith("7 layers")]
    assert float(total[2]) == pytest.approx(sum(ours), abs=0.01)
    assert "whole plan" in printed
    assert main([*command, "--top", "3"]) == 0
    printed = capsys.readouterr().out
    assert len(layer_rows(printed)) == 3
    assert "7 layers (3 shown)" in printed


def test_bench_shows_layers_without_onnxruntime(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert main("bench digits --layers --runs 1 --backend cpu".split()) == 0
    printed = capsys.readouterr().out
    assert "left out: not installed (pip install onnxruntime)" in printed
    assert printed.count("onnxruntime") == 2
    assert "speed" not in printed
    assert {len(row) for row in layer_rows(printed)} == {6}


def test_bench_of_layers_says_why_a_backend_is_missing(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SystemInfo, "query", lambda: BARE)
    assert main("bench digits --layers --backend gpu_pixel".split()) == 2
    assert "gpu_pixel cannot run here: no libEGL" in capsys.readouterr().err


def test_bench_of_layers_asks_for_inputs_that_it_cannot_make_up(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "net.onnx"
    relu = node("Relu", ["x"], ["y"])
    path.write_bytes(proto([relu], {"x": ("float32", None)}, {"y": ("float32", None)}))
    assert main(["bench", str(path), "--layers"]) == 2
    assert "give it with --input x=FILE.npy" in capsys.readouterr().err


def test_bench_shares_its_seconds_out(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[str] = Counter()

    def slow(worker: Worker, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        calls["slow"] += 1
        time.sleep(0.02)
        return infer(worker, inputs)

    def quick(path: Path) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
        def call(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            calls["quick"] += 1
            return {"probabilities": np.zeros((1, 10), np.float32)}

        return call

    monkeypatch.setattr(bench_model, "infer", slow)
    monkeypatch.setattr(bench_model, "onnxruntime_call", quick)
    assert main(["bench", "digits", "--backend", "cpu", "--runs", "3", "--seconds", "0.06"]) == 0
    # Two calls a turn, after one for the outputs; onnxruntime has one more, which shows whether it can run.
    assert calls == {"slow": 1 + 2, "quick": 2 + 3 * 2}
    printed = capsys.readouterr().out
    assert "medians of 1 to 3" in printed
    (row,) = [line.split() for line in printed.splitlines() if line.startswith("cpu")]
    assert float(row[1]) == float(row[2]) >= 20.0
    assert float(row[5]) > 1e-3


def test_bench_names_what_it_leaves_out(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert main(["bench", "digits", "--backend", "cpu", "--runs", "1"]) == 0
    assert "onnxruntime  left out: not installed" in capsys.readouterr().out
    monkeypatch.setattr(SystemInfo, "query", lambda: BARE)
    assert main(["bench", "digits", "--backend", "gpu_pixel", "--runs", "1"]) == 0
    printed = capsys.readouterr().out
    assert "left out: no libEGL" in printed
    assert "median" not in printed


@pytest.mark.parametrize(
    ("value", "wanted", "difference"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.5], [1.0, 2.0], 0.25),
        ([0.1], [0.2], 0.1),
        ([np.nan, np.inf], [np.nan, np.inf], 0.0),
        ([np.nan], [1.0], np.inf),
        ([1.0], [np.inf], np.inf),
        ([1.0, 2.0], [1.0], np.inf),
        ([], [], 0.0),
    ],
)
def test_agreement(value: list[float], wanted: list[float], difference: float) -> None:
    assert agreement({"y": np.array(value)}, {"y": np.array(wanted)}) == pytest.approx(difference)


def test_doctor_tells_what_is_here(capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GAMEGLUE_CACHE_DIR", str(tmp_path))
    (tmp_path / "native").mkdir()
    (tmp_path / "native" / "kernel").write_bytes(bytes(3 << 20))
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    for section in (
        "machine",
        "OpenGL",
        "OpenCL",
        "display",
        "sound and gamepads",
        "kernel cache",
        "packages",
        "backends",
        "to do",
    ):
        assert f"\n{section}\n" in printed
    assert str(tmp_path) in printed
    assert "1 files, 3.0 MiB" in printed
    assert np.__version__ in printed


def test_doctor_says_what_to_install(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemInfo, "query", lambda: BARE)
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert "none: no libEGL" in printed
    assert f"OpenGL: {how_to_get_opengl()}" in printed
    assert 'pip install "gameglue[intel-opencl]"' in printed
    assert 'pip install "gameglue[pocl]"' in printed


def test_doctor_survives_a_broken_machine(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> SystemInfo:
        raise RuntimeError("the driver is on fire")

    monkeypatch.setattr(SystemInfo, "query", fail)
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("RuntimeError: the driver is on fire") == 4
    assert "numpy" in printed


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("play digit", "no demo 'digit'; did you mean 'digits'?"),
        ("play digits --backend cpu --device gl", "takes no --device"),
        ("play digits --backend gpu_pixel --device opencl", "--backend gpu_compute --device opencl"),
        ("run nothing_like_it.onnx", "there is no model 'nothing_like_it.onnx'; "),
        ("run assets/digits/digit.onnx", "did you mean assets/digits/digits.onnx?"),
        ("inspect README.md", "README.md is not an ONNX model"),
        ("bench assets", "assets"),
        ("bench digits --top 3", "--top goes with --layers"),
        ("bench digits --layers --backend cpu --device gl", "takes no --device"),
        ("run digits --dim batch", "--dim is written as NAME=SIZE"),
        ("run digits --dim bach=1", "no dimension named 'bach'"),
        ("run digits --input image", "--input is written as NAME=FILE.npy"),
        ("run digits --input picture=x.npy", "no input 'picture'; its inputs: image"),
        ("run digits --input image=README.md", "cannot read README.md"),
        ("run digits --output README.md/x.npz", "README.md"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_exit_code_2(
    command: str, message: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(command.split()) == 2
    told = capsys.readouterr().err.strip()
    assert message in told
    assert len(told.splitlines()) == 1
    assert "Traceback" not in told


def test_traceback_shows_where_an_error_came_from() -> None:
    for command in (["--traceback", "run", "missing"], ["run", "missing", "--traceback"]):
        with pytest.raises(ValueError, match="no model 'missing'"):
            main(command)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("play digits --size big", "written as WIDTHxHEIGHT"),
        ("play digits --frames 0", "needs a whole number above 0"),
        ("play digits --backend gpu", "cpu"),
        ("bench digits --layers --backend gpu", "cpu"),
        ("bench digits --layers --top 0", "needs a whole number above 0"),
        ("dance", "play"),
    ],
)
def test_a_wrong_command_line_says_what_is_right(command: str, message: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_without_a_command_the_help_is_shown(capsys: Capture) -> None:
    assert main([]) == 2
    assert "start here:" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["list", "play", "run", "inspect", "bench", "doctor"])
def test_every_command_explains_itself(command: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args([command, "--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert f"usage: gameglue {command}" in printed
    assert max(map(len, printed.splitlines())) <= 100


def test_progress_appears_only_after_a_while(capsys: Capture) -> None:
    with CompileProgress("kernels") as patient:
        for done in range(4):
            patient(done, 3)
    assert capsys.readouterr().err == ""
    with CompileProgress("kernels", patience=0.0) as impatient:
        for done in range(4):
            impatient(done, 3)
    assert capsys.readouterr().err == "kernels: 3 in all, cached for later runs\n"


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="this system has no such policy")
def test_warming_up_beside_a_game_gives_way_to_it() -> None:
    """In a process of its own, as no way leads back."""
    code = (
        "import os, sys\n"
        "from gameglue.cli import main\n"
        "code = main(['warmup', 'digits', '--low-priority'])\n"
        "assert os.sched_getscheduler(0) == os.SCHED_IDLE\n"
        "sys.exit(code)\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "digits" in done.stdout
