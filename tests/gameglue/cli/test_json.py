"""`--json`: one document on standard output that says what the tables say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gameglue.cli import COMMANDS, build_parser, main
from gameglue.cli.console import command_line, json_types
from gameglue.profiling.recording import ProfileRecording
from gameglue.profiling.session import PAUSED, RUNNING, Profile

Capture = pytest.CaptureFixture[str]


def said(capsys: Capture, *command: str, code: int = 0) -> Any:
    """What a command prints, read as JSON."""
    assert main([*command, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_doctor(capsys: Capture) -> None:
    found = said(capsys, "doctor")
    assert {"machine", "OpenGL", "OpenCL", "packages", "backends", "to do"} <= found.keys()
    assert [row["value"] for row in found["backends"] if row["name"] == "cpu"] == ["runs here"]


def test_operators(capsys: Capture) -> None:
    (row,) = said(capsys, "operators", "conv", "--backend", "cpu")
    assert (row["name"], row["domain"], row["backends"]) == ("Conv", "ai.onnx", {"cpu": "native"})


def test_inspect(capsys: Capture) -> None:
    found = said(capsys, "inspect", "digits", "--backend", "cpu")
    assert found["inputs"][0]["name"] == "image"
    assert found["outputs"][0]["name"] == "probabilities"
    assert {"name", "operator", "inputs", "outputs"} == found["layers"][0].keys()
    (plan,) = found["plans"].values()
    assert plan["backend"] == "cpu"
    assert plan["fallbacks"] == []


def test_bench_says_that_above_one_is_faster(capsys: Capture) -> None:
    found = said(capsys, "bench", "digits", "--backend", "cpu", "--runs", "2")
    base, ours = found["times"]
    assert found["compared with"] == base["name"] == "onnxruntime"
    assert base["speed"] == 1.0
    assert ours["difference"] < 1e-4
    assert (ours["speed"] > 1.0) == (ours["median_ms"] < base["median_ms"]) or ours["runs"] > 1
    layers = said(capsys, "bench", "digits", "--layers", "--runs", "1")
    for layer in layers["layers"]:
        if layer["speed"] is not None:
            assert layer["speed"] == pytest.approx(layer["onnxruntime_ms"] / layer["ms"])


def test_diff(capsys: Capture) -> None:
    found = said(capsys, "diff", "digits")
    assert found["agree"]
    assert found["differs first"] is None
    assert {"name", "layer", "operator", "error"} <= found["values"][0].keys()
    found = said(capsys, "diff", "digits", "--tolerance", "0", code=1)
    assert found["differs first"] in {value["name"] for value in found["values"] if value["error"]}


def test_profile(tmp_path: Path, capsys: Capture) -> None:
    command = ("profile", "digits", "--backend", "cpu", "--headless", "--frames", "24", "--block", "6")
    found = said(
        capsys, *command, "--rate", "0", "--no-blocking-counts", "--trace", str(tmp_path / "trace.json")
    )
    assert found["frames"] == 24
    assert found["with inference"]["p99"] >= found["with inference"]["median"] > 0.0
    assert found["noise of that"] is None  # too few frames
    assert found["workers"]
    assert (tmp_path / "trace.json").exists()


def test_what_json_lacks() -> None:
    data = {"a": np.float32(0.5), "b": float("inf"), "c": np.arange(2), "d": Path("x"), "e": (True, None)}
    assert json_types(data) == {"a": 0.5, "b": None, "c": [0, 1], "d": "x", "e": [True, None]}


def test_a_difference_inside_the_noise_is_none(capsys: Capture) -> None:
    rng = np.random.default_rng(1)

    def profile(shift: float) -> Profile:
        made = Profile("", ProfileRecording.__new__(ProfileRecording), 60.0)
        made.sides = {side: rng.gamma(4.0, 0.001, 300) for side in (RUNNING, PAUSED)}
        made.sides[RUNNING] += shift
        return made

    same, later = profile(0.0), profile(0.05)
    assert same.noise_p99 is not None
    assert abs(same.difference_p99) < same.noise_p99
    assert "no difference was found" in same.difference_text
    assert later.difference_p99 == pytest.approx(50.0, abs=5.0)
    assert "no difference" not in later.difference_text
    assert later.noise_p99 is not None
    assert 0.0 < later.noise_p99 < 10.0
    same.sides[PAUSED] = same.sides[PAUSED][:10]
    assert same.noise_p99 is None


def test_a_mistyped_command_is_told_with_the_likely_one(capsys: Capture) -> None:
    for command, message in (
        (["lst"], "there is no command 'lst'; did you mean 'list'?"),
        (["--traceback", "xyzzy"], "there is no command 'xyzzy'; commands: list, play"),
    ):
        with pytest.raises(SystemExit) as left:
            main(command)
        assert left.value.code == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_its_help(command: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    assert f"usage: gameglue {command}" in capsys.readouterr().out
    assert build_parser(command).parse_known_args([])


def test_printed_commands_can_be_pasted(tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "my first game"
    assert main(["new", str(folder)]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert command_line("python", folder / "main.py") in lines
    assert command_line("gameglue", "play", folder) in lines
    assert main(["list"]) == 0
    assert any(line.startswith("  gameglue play ") for line in capsys.readouterr().out.splitlines())
