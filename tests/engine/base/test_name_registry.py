"""What is stored by name is found again, in modules that nothing has imported yet too."""

from __future__ import annotations

import subprocess
import sys

import pytest

from engine.base.name_registry import NameRegistry
from tests.benchmarks.processes import ROOT


def given() -> int:
    return 1


def test_what_was_added_has_a_name() -> None:
    functions = NameRegistry()
    assert functions.name_of(given) is None
    functions.add(given)
    name = functions.name_of(given)
    assert name == f"{__name__}.given"
    assert functions[name] is given


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "given",
        "",
        "engine.",
        "engine.nowhere.given",
        "engine..x",
        "engine.base.name_registry.NameRegistry",
    ],
)
def test_other_names_are_refused(name: str) -> None:
    """Those of functions that were not added too: a damaged file calls nothing else."""
    with pytest.raises(KeyError):
        NameRegistry()[name]


def test_a_module_is_imported_when_it_is_named() -> None:
    code = (
        "import sys\n"
        "from engine.kernels.size import DEFERRABLE\n"
        "name = 'engine.backends.cpu.codegen.task_partition'\n"
        "assert name not in sys.modules\n"
        "assert DEFERRABLE[name + '.cut_tasks'] is sys.modules[name].cut_tasks\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
