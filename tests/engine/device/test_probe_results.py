"""A device counts as there when a small kernel ran on it; another is taken else, and the reason is told."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import moderngl
import pytest

from engine.backends import select
from engine.backends.base import BackendType
from engine.base.errors import DeviceError
from engine.device import probe_results
from engine.device.cl import runtimes
from engine.device.gl import probe as gl_probe
from engine.device.gl.device import GLDevice
from engine.device.probe_results import Probe, probed

RunChild = Callable[..., str]


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither this process nor the cache folder knows of an earlier probe."""
    monkeypatch.setattr(probe_results, "_known", {})
    monkeypatch.setenv("GAMEGLUE_CACHE_DIR", str(tmp_path / "cache"))


ASK = """
import json
from engine import SystemInfo
from engine.device.cl.device import CLDevice
from engine.base.errors import DeviceError
info = SystemInfo.query()
answer = {
    "devices": [device.name for device in info.cl_devices],
    "refused": [(device.name, reason) for device, reason in info.cl_refused],
    "reason": info.cl_reason,
}
try:
    CLDevice(0)
except DeviceError as error:
    answer["error"] = str(error)
print(json.dumps(answer))
"""


def test_a_runtime_that_compiles_nothing_is_told_with_the_reason(
    run_child: RunChild, refusing_runtime: Path
) -> None:
    answer = json.loads(run_child(ASK, OCL_ICD_VENDORS=str(refusing_runtime)).splitlines()[-1])
    assert answer["devices"] == []
    assert answer["refused"] == [["processor of tomorrow", "error: unknown target CPU 'generic'"]]
    for told in (answer["reason"], answer["error"]):
        assert "unknown target CPU" in told
        assert 'pip install "gameglue[intel-opencl]"' in told


def test_a_worker_on_such_a_runtime_ends_in_a_short_error(
    run_child: RunChild, refusing_runtime: Path, held_to_3_3: dict[str, str]
) -> None:
    code = """
from engine.backends.base import BackendType
from engine.backends.select import create_backend
from engine.base.errors import DeviceError
for device in ("opencl", None):
    try:
        create_backend(BackendType.GPU_COMPUTE, device)
    except DeviceError as error:
        print(error)
"""
    answer = run_child(code, OCL_ICD_VENDORS=str(refusing_runtime), **held_to_3_3)
    assert len(answer.splitlines()) == 2
    assert answer.count("unknown target CPU") == 2
    assert "no compute shaders" in answer or "OpenGL" in answer.splitlines()[1]


def test_a_success_is_stored_and_a_failure_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    results = [Probe("no"), Probe("still not"), Probe(seconds=0.25), Probe("never asked")]
    tried: list[Probe] = []

    def attempt() -> Probe:
        tried.append(results[len(tried)])
        return tried[-1]

    def in_a_new_process() -> Probe:
        monkeypatch.setattr(probe_results, "_known", {})
        return probed(("a device", "driver 1"), attempt)

    assert in_a_new_process() == probed(("a device", "driver 1"), attempt) == Probe("no")
    assert in_a_new_process() == Probe("still not")
    assert in_a_new_process() == Probe(seconds=0.25)
    assert in_a_new_process() == Probe(seconds=0.25)
    assert len(tried) == 3
    results[3] = Probe(seconds=0.5)
    assert probed(("a device", "driver 2"), attempt) == Probe(seconds=0.5)


@pytest.mark.gl
@pytest.mark.parametrize("kind", ["compute", "pixel"])
def test_shaders_run_here_and_leave_the_game_as_it_was(
    game: moderngl.Context, gl_device: GLDevice, kind
) -> None:
    if kind == "compute" and not gl_device.info.supports_compute:
        pytest.skip("OpenGL here has no compute shaders")
    assert gl_probe.probe_gl(gl_device, kind).runs


@pytest.mark.gl
@pytest.mark.parametrize(
    ("runner", "backend_type"),
    [("_run_compute", BackendType.GPU_COMPUTE), ("_run_pixel", BackendType.GPU_PIXEL)],
)
def test_a_driver_that_computes_wrongly_is_not_taken(
    gl_device: GLDevice, monkeypatch: pytest.MonkeyPatch, runner: str, backend_type: BackendType
) -> None:
    if not gl_device.info.supports_compute:
        pytest.skip("OpenGL here has no compute shaders")
    right = getattr(gl_probe, runner)
    monkeypatch.setattr(gl_probe, runner, lambda ctx, values: right(ctx, values) * 0.5)
    with pytest.raises(DeviceError, match="wrong numbers"):
        select.create_backend(backend_type, gl_device if backend_type is BackendType.GPU_PIXEL else "gl")


@pytest.mark.gl
def test_a_driver_that_raises_is_told(gl_device: GLDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(ctx: moderngl.Context, values: object) -> None:
        raise moderngl.Error("link failed: out of coffee")

    monkeypatch.setattr(gl_probe, "_run_pixel", fail)
    assert "out of coffee" in gl_probe.probe_gl(gl_device, "pixel").problem


@pytest.mark.skipif(sys.platform == "win32", reason="Windows' loader takes a list of files")
def test_runtimes_of_the_environment_are_registered_beside_the_systems(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH"):
        monkeypatch.delenv(name, raising=False)
    library = tmp_path / "lib" / "libintelocl.so"
    library.parent.mkdir()
    library.touch()
    system = tmp_path / "vendors"
    system.mkdir()
    (system / "card.icd").write_text("libcard.so\n")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(runtimes, "_SYSTEM_VENDORS", system)
    assert runtimes.installed_runtimes() == [library]
    with runtimes.runtimes_registered():
        folder = Path(runtimes.os.environ["OCL_ICD_VENDORS"])
        texts = sorted(file.read_text().strip() for file in folder.glob("*.icd"))
        assert texts == sorted([str(library), "libcard.so"])
    assert "OCL_ICD_VENDORS" not in runtimes.os.environ
    assert not folder.exists()
    monkeypatch.setenv("OCL_ICD_VENDORS", "/somewhere")
    with runtimes.runtimes_registered():
        assert runtimes.os.environ["OCL_ICD_VENDORS"] == "/somewhere"


CHILD_WITHOUT = """
import sys
{before}
import engine.device.cl.device
from engine.base.errors import DeviceError
assert "pyopencl" not in sys.modules or sys.modules["pyopencl"] is None
try:
    engine.device.cl.device.CLDevice()
except DeviceError as error:
    print("said:", error)
"""


def test_a_machine_without_a_platform_says_what_to_install(run_child) -> None:
    answer = run_child(
        CHILD_WITHOUT.format(before=""), OCL_ICD_VENDORS="/nowhere", OPENCL_VENDOR_PATH="/nowhere"
    )
    assert "gameglue[pocl]" in answer


def test_a_machine_without_pyopencl_says_what_to_install(run_child) -> None:
    answer = run_child(CHILD_WITHOUT.format(before="sys.modules['pyopencl'] = None"))
    assert "pip install pyopencl" in answer
