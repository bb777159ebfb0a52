"""`gameglue new`, and games in folders of one's own: with `gameglue play`, and by themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.base.errors import InputError
from gameglue.cli import main
from gameglue.cli.demos import find_demos, find_game
from gameglue.cli.new import make_game
from tests.conftest import ROOT
from tests.gameglue.cli.test_play import read_png, report_of


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Python with these arguments, in `folder`, without a display."""
    variables = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**variables, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.fixture
def game(tmp_path: Path) -> Path:
    folder = tmp_path / "my_game"
    make_game(folder)
    return folder


def test_a_new_game_runs_by_itself(game: Path) -> None:
    options = ("--headless", "--frames", "90", "--seed", "0", "--screenshot", "s.png", "--report", "r.json")
    played = run(game.parent, "my_game/main.py", *options)
    assert played.returncode == 0, played.stderr
    assert "Traceback" not in played.stderr
    report = report_of(game.parent / "r.json")
    assert report["frames"] == 90
    assert report["metadata"]["component errors"] == 0
    picture = read_png(game.parent / "s.png")[:, :, :3].astype(int)
    # The ship is bright blue, and has left the middle, where it began, for the amber star.
    ship = (abs(picture - (0x4C, 0xC2, 0xFF)).sum(axis=2) < 30).nonzero()
    assert len(ship[0]) > 300
    assert abs(ship[0].mean() - 320) + abs(ship[1].mean() - 480) > 60
    assert (abs(picture - (0xFF, 0xB4, 0x54)).sum(axis=2) < 30).sum() > 150
    # A title stands above, in white.
    assert (picture[:60].min(axis=2) > 200).sum() > 100


def test_a_new_game_collects_stars(game: Path) -> None:
    code = """
import sys
sys.argv = ["main.py"]
from chaser import Chaser
from main import build
from gameglue import App, PlayOptions
with App("stars", headless=True, seed=2, folder=".", audio=False, size=(160, 120)) as app:
    build(app, PlayOptions(None, autoplay=True, seed=2))
    app.run(frames=300)
    (chaser,) = app.find_components(Chaser)
    print("stars", chaser.stars, chaser.score.text)
"""
    done = run(game, "-c", code)
    assert done.returncode == 0, done.stderr
    stars = int(done.stdout.split("stars ")[1].split()[0])
    assert stars >= 4
    assert f"{stars} stars" in done.stdout


@pytest.mark.parametrize("name", ["./my_game", "my_game", "my_game/main.py"])
def test_play_takes_a_folder(game: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(game.parent)
    found = find_game(name)
    assert (found.name, found.own_folder) == ("my_game", game)
    assert (
        found.description == "my_game: lead a ship to the stars; a network steers it to wherever you point."
    )


def test_a_new_game_plays_from_its_own_folder(game: Path) -> None:
    played = run(game, "-m", "gameglue", "play", ".", "--headless", "--frames", "5")
    assert played.returncode == 0, played.stderr
    assert report_of(game / "out" / "my_game.json")["frames"] == 5


def test_its_model_is_the_one_that_its_script_writes(game: Path) -> None:
    shipped = (game / "assets/steering.onnx").read_bytes()
    (game / "assets/steering.onnx").unlink()
    assert run(game, "make_model.py").returncode == 0
    assert (game / "assets/steering.onnx").read_bytes() == shipped


def test_its_pictures_and_sound_are_those_that_its_script_makes(game: Path) -> None:
    names = ("ship.png", "star.png", "sky.png", "chime.wav")
    shipped = {name: (game / "assets" / name).read_bytes() for name in names}
    for name in names:
        (game / "assets" / name).unlink()
    assert run(game, "make_assets.py").returncode == 0
    for name, content in shipped.items():
        made = game / "assets" / name
        if name.endswith(".wav"):
            assert made.read_bytes() == content
            continue
        (game / f"shipped_{name}").write_bytes(content)
        difference = read_png(made).astype(int) - read_png(game / f"shipped_{name}").astype(int)
        assert abs(difference).max() <= 8  # other versions of SDL may smooth in another way


def test_its_names_are_the_games(game: Path) -> None:
    texts = [
        path.read_text(encoding="utf-8")
        for path in game.rglob("*")
        if path.suffix in (".py", ".md", ".scene")
    ]
    assert len(texts) == 6
    assert not any("TITLE" in text for text in texts)
    assert sum("my_game" in text for text in texts) == 3


def test_what_is_there_stays(game: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (game / "main.py").read_text(encoding="utf-8")
    (game / "main.py").write_text("mine", encoding="utf-8")
    assert main(["new", str(game)]) == 2
    assert "there already" in capsys.readouterr().err
    assert (game / "main.py").read_text(encoding="utf-8") == "mine" != before


def test_a_folder_that_is_no_game_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"no game at .*: give a folder with a main\.py, or a demo's name"):
        find_game(str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"the folder empty has no main\.py: give a folder with a main\.py"):
        find_game("empty")
    (tmp_path / "main.py").write_text("print(1)\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"has no build\(app, options\)"):
        find_game(str(tmp_path))
    (tmp_path / "main.py").write_text("def build(:\n", encoding="utf-8")
    with pytest.raises(InputError, match="is not Python"):
        find_game(str(tmp_path))


def test_a_demo_goes_before_a_folder_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_game(tmp_path / "digits")
    monkeypatch.chdir(tmp_path)
    assert find_game("digits").folder == next(d.folder for d in find_demos() if d.name == "digits")
    assert find_game("./digits").own_folder == tmp_path / "digits"


def test_an_error_of_a_game_is_one_line(game: Path) -> None:
    (game / "assets/steering.onnx").write_bytes(b"nothing")
    played = run(game, "main.py", "--headless", "--frames", "3")
    assert played.returncode == 2
    assert played.stderr.startswith("my_game: ")
    assert "Traceback" not in played.stderr


def test_a_new_game_can_be_profiled(game: Path) -> None:
    command = ("-m", "gameglue", "profile", "./my_game", "--headless", "--frames", "30", "--no-layers")
    profiled = run(game.parent, *command)
    assert profiled.returncode in (0, 1), profiled.stderr  # 1 where a call of the driver was blocking
    assert "gameglue: my_game, 30 frames" in profiled.stdout
