"""The cache folder: where it is, what is refused there, and how files are read and written."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.base import cache
from engine.base.cache import cache_dir, read_sealed, write_sealed

posix = pytest.mark.skipif(sys.platform == "win32", reason="file owners and modes")
FORM = b"FORM1\n"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("GAMEGLUE_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(cache, "_refused", set())


def private(tmp_path: Path) -> Path:
    """The folder that takes the place of one that cannot be used."""
    return tmp_path / f"gameglue-{os.getuid()}"


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a file or folder belong to another user, who is not root."""
    number = path.lstat().st_ino

    def replaced(status: os.stat_result) -> os.stat_result:
        if status.st_ino != number:
            return status
        return os.stat_result((*status[:4], 54321, *status[5:10]))

    lstat, fstat = Path.lstat, os.fstat
    monkeypatch.setattr(Path, "lstat", lambda self: replaced(lstat(self)))
    monkeypatch.setattr(os, "fstat", lambda file: replaced(fstat(file)))


def test_the_variable_names_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GAMEGLUE_CACHE_DIR", str(tmp_path / "mine"))
    assert cache_dir() == tmp_path / "mine"
    assert cache_dir("gl", "programs") == tmp_path / "mine" / "gl" / "programs"
    assert (tmp_path / "mine" / "gl" / "programs").is_dir()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the folders of Linux")
def test_the_usual_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_dir() == tmp_path / "home" / ".cache" / "gameglue"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert cache_dir() == tmp_path / "caches" / "gameglue"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert cache_dir() == tmp_path / "home" / ".cache" / "gameglue"


@posix
def test_without_a_home_it_is_a_private_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty HOME is expanded to the root folder, where a game that runs as root could even write."""
    monkeypatch.setenv("HOME", "")
    assert cache_dir("native") == private(tmp_path) / "native"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the folders of Linux")
def test_a_named_place_for_caches_needs_no_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert cache_dir() == tmp_path / "caches" / "gameglue"


@posix
def test_a_folder_that_cannot_be_made_is_replaced_by_a_private_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("GAMEGLUE_CACHE_DIR", str(blocked))
    folder = cache_dir("native")
    assert folder == private(tmp_path) / "native"
    assert folder.parent.stat().st_mode & 0o077 == 0
    assert cache_dir("native") == folder


@posix
def test_new_folders_belong_to_the_user_alone_whatever_the_umask(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GAMEGLUE_CACHE_DIR", str(tmp_path / "a" / "b"))
    before = os.umask(0)
    try:
        folder = cache_dir("native")
        assert folder is not None
        write_sealed(folder / "file", FORM, b"body")
    finally:
        os.umask(before)
    for path in (folder, folder.parent, folder / "file"):
        assert path.stat().st_mode & 0o077 == 0
    assert read_sealed(folder / "file", FORM) == b"body"


@posix
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
@pytest.mark.parametrize("part", ["", "native"])
def test_a_folder_that_others_can_write_is_refused_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: int, part: str
) -> None:
    monkeypatch.setenv("GAMEGLUE_CACHE_DIR", str(tmp_path / "mine"))
    cache_dir("native")
    open_one = tmp_path / "mine" / part
    open_one.chmod(mode)
    with pytest.warns(RuntimeWarning, match=f"(?s){open_one}.*chmod go-w.*GAMEGLUE_CACHE_DIR"):
        assert cache_dir("native") == private(tmp_path) / "native"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache_dir("native") == private(tmp_path) / "native"
        open_one.chmod(0o755)
        assert cache_dir("native") == tmp_path / "mine" / "native"


@posix
def test_a_folder_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GAMEGLUE_CACHE_DIR", str(tmp_path / "mine"))
    (tmp_path / "mine").mkdir(mode=0o755)
    give_away(tmp_path / "mine", monkeypatch)
    with pytest.warns(RuntimeWarning, match="54321"):
        assert cache_dir("native") == private(tmp_path) / "native"


@posix
def test_a_link_is_followed_if_the_user_has_made_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GAMEGLUE_CACHE_DIR", str(tmp_path / "link"))
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert cache_dir("native") == tmp_path / "real" / "native"
    give_away(tmp_path / "link", monkeypatch)
    with pytest.warns(RuntimeWarning, match="54321"):
        assert cache_dir("native") == private(tmp_path) / "native"


@posix
def test_a_link_inside_the_folder_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GAMEGLUE_CACHE_DIR", str(tmp_path / "mine"))
    cache_dir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "mine" / "native").symlink_to(tmp_path / "elsewhere")
    with pytest.warns(RuntimeWarning, match="link"):
        assert cache_dir("native") == private(tmp_path) / "native"


@posix
def test_a_temporary_folder_that_others_can_write_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("GAMEGLUE_CACHE_DIR", str(blocked))
    private(tmp_path).mkdir()
    private(tmp_path).chmod(0o777)
    with pytest.warns(RuntimeWarning):
        assert cache_dir() is None


def test_no_temporary_folder_is_needed_where_the_named_one_can_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def none() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("GAMEGLUE_CACHE_DIR", str(tmp_path / "mine"))
    folder = cache_dir("native")
    assert folder == tmp_path / "mine" / "native"
    write_sealed(folder / "file", FORM, b"body")
    assert read_sealed(folder / "file", FORM) == b"body"
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("GAMEGLUE_CACHE_DIR", str(tmp_path / "file"))
    assert cache_dir("native") is None


def test_without_a_folder_nothing_is_read_or_written() -> None:
    write_sealed(None, FORM, b"body")
    assert read_sealed(None, FORM) is None


def test_a_file_is_read_under_its_own_name_and_form_only(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_sealed(path, FORM, b"body")
    assert read_sealed(path, FORM) == b"body"
    assert read_sealed(path, b"FORM2\n") is None
    path.rename(tmp_path / "b")
    assert read_sealed(path, FORM) is None
    assert read_sealed(tmp_path / "b", FORM) is None


@pytest.mark.parametrize("body", [b"", b"body", bytes(1000)])
def test_no_flipped_bit_and_no_cut_is_read(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "a"
    write_sealed(path, FORM, body)
    whole = path.read_bytes()
    for position in range(min(len(whole), 100)):
        flipped = bytearray(whole)
        flipped[position] ^= 1 << position % 8
        path.write_bytes(flipped)
        assert read_sealed(path, FORM) is None
        path.write_bytes(whole[:position])
        assert read_sealed(path, FORM) is None
    path.write_bytes(whole)
    assert read_sealed(path, FORM) == body


@posix
@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602])
def test_a_file_that_others_can_write_is_not_read(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "a"
    write_sealed(path, FORM, b"body")
    path.chmod(mode)
    assert read_sealed(path, FORM) is None
    path.chmod(0o644)
    assert read_sealed(path, FORM) == b"body"
    path.chmod(mode)
    write_sealed(path, FORM, b"new")
    assert read_sealed(path, FORM) == b"new"


@posix
def test_a_file_of_another_user_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    write_sealed(path, FORM, b"body")
    give_away(path, monkeypatch)
    assert read_sealed(path, FORM) is None


@posix
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_what_is_no_file_is_not_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "a")
    assert read_sealed(tmp_path / "a", FORM) is None


@posix
def test_links_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    write_sealed(tmp_path / "elsewhere" / "a", FORM, b"body")
    (tmp_path / "a").symlink_to(tmp_path / "elsewhere" / "a")
    assert read_sealed(tmp_path / "a", FORM) is None
    write_sealed(tmp_path / "a", FORM, b"new")
    assert read_sealed(tmp_path / "a", FORM) == b"new"
    assert read_sealed(tmp_path / "elsewhere" / "a", FORM) == b"body"


def test_a_folder_that_is_gone_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "native" / "a"
    assert read_sealed(path, FORM) is None
    write_sealed(path, FORM, b"body")
    assert read_sealed(path, FORM) == b"body"


MODEL = """
import sys, tempfile
import numpy as np
from tests.graphs import mlp
if sys.argv[1] == "no temporary folder":
    def none(): raise FileNotFoundError("No usable temporary directory found")
    tempfile.gettempdir = tempfile._get_default_tempdir = none
from engine import BackendType, ModelLoader, Worker
from engine.device import native
with Worker(ModelLoader.load(mlp((3, 4, 2), 0)), BackendType.CPU) as worker:
    worker.schedule(np.ones((1, 3), np.float32))
    print(worker.peek_output().download_to_array().tolist(), native.process_store().compilations)
"""


@posix
@pytest.mark.long
def test_models_run_whatever_becomes_of_the_folders(tmp_path: Path) -> None:
    """A folder to write, one that others can write, one that cannot be written, and no temporary folder."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "file").write_text("not a folder")
    root = Path(__file__).parents[3]

    def run(folder: str, how: str = "") -> tuple[str, int, str]:
        environment = {
            **os.environ, "GAMEGLUE_CACHE_DIR": str(tmp_path / folder), "PYTHONPATH": str(root),
            "TMPDIR": str(tmp_path), "GAMEGLUE_STORED_PLANS": "on",
        }  # fmt: skip
        command = [sys.executable, "-c", MODEL, how]
        ended = subprocess.run(
            command, env=environment, check=True, timeout=300, capture_output=True, text=True
        )
        answer, compilations = ended.stdout.rsplit(maxsplit=1)
        return answer, int(compilations), ended.stderr

    first, compiled, said = run("mine", "no temporary folder")
    assert compiled > 0
    assert not said
    assert run("mine", "no temporary folder") == (first, 0, "")
    answer, compiled, said = run("open")
    assert answer == first
    assert compiled > 0
    assert said.count("RuntimeWarning") == 1
    assert not list((tmp_path / "open").iterdir())
    assert run("open")[:2] == (first, 0)
    answer, compiled, said = run("file", "no temporary folder")
    assert answer == first
    assert compiled > 0
