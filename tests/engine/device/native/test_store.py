"""The store of native code: what it computes, what it keeps, and what it refuses."""

from __future__ import annotations

import ctypes
import math
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from engine.base.errors import KernelCompileError
from engine.device import native
from engine.device.native import NativeSource, NativeStore
from engine.device.native import pool as native_pool
from engine.device.native import store as module
from engine.device.native.pool import CompiledObject, CompilePool
from engine.device.native.prelude import PRELUDE

ROOT = Path(__file__).parents[4]


def kernel(statements: str, name: str = "kernel", before: str = "") -> NativeSource:
    """A kernel whose loop body is `statements`; x, y and z are the first three argument words."""
    lines = "\n".join("        " + line for line in statements.strip().splitlines())
    text = f"""
import math
{before}

def kernel(args, begin, end):
    x, y, z = arg_i64(args, 0), arg_i64(args, 1), arg_i64(args, 2)
    for i in range(begin, end):
{lines}
"""
    return NativeSource(name, PRELUDE + text, "kernel")


def run(address: int, count: int, *arrays: np.ndarray) -> None:
    args = np.zeros(3, np.int64)
    args[: len(arrays)] = [array.ctypes.data for array in arrays]
    call = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(address)
    call(args.ctypes.data, 0, count)


def load_one(store: NativeStore, source: NativeSource) -> int:
    return store.load([source])[source.key]


def file_of(store: NativeStore, source: NativeSource) -> Path:
    path = store.path(source.key)
    assert path is not None
    return path


AXPY = kernel(
    "store_f32(y, i, load_f32(y, i) + np.float32(2.5) * load_f32(x, i))", before="import numpy as np"
)


def test_computes_what_numpy_computes(store: NativeStore) -> None:
    x, y = np.arange(1001, dtype=np.float32), np.ones(1001, np.float32)
    run(load_one(store, AXPY), 1001, x, y)
    np.testing.assert_array_equal(y, 1 + 2.5 * x)
    assert store.compilations == 1


def test_a_stored_kernel_is_not_compiled_again(store: NativeStore, pool: CompilePool) -> None:
    first = load_one(store, AXPY)
    assert load_one(store, AXPY) == first
    assert store.compilations == 1
    second = NativeStore(store.folder, pool)
    x, y = np.ones(4, np.float32), np.zeros(4, np.float32)
    run(load_one(second, AXPY), 4, x, y)
    assert second.compilations == 0
    np.testing.assert_array_equal(y, 2.5)


def test_a_kernel_that_reads_more_arguments_than_it_is_given_is_not_loaded(
    store: NativeStore, pool: CompilePool
) -> None:
    load_one(store, AXPY)
    assert AXPY.words == 3
    assert NativeStore(store.folder, pool).load_stored({AXPY.key: 2}) is None
    for words in (3, 4, 0):
        assert NativeStore(store.folder, pool).load_stored({AXPY.key: words})


def test_what_another_compiler_made_is_not_stored(
    store: NativeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiling process runs the compiler's file as it is now, and keys say as it was."""
    monkeypatch.setattr(module, "_COMPILER_FILE", Path(__file__))
    assert load_one(store, AXPY)
    assert store.folder is not None
    assert not list(store.folder.iterdir())


def test_a_warm_start_does_not_import_numba(store: NativeStore, pool: CompilePool, tmp_path: Path) -> None:
    """Also that libm and libc functions are found when llvmlite alone has been imported."""
    maths = kernel(
        """
v = load_f64(x, i)
store_f64(y, i, math.exp(v) + math.tanh(v) + math.erf(v) + math.log(v) + v ** 1.7 + v % 0.3)
copy_bytes(z + 8 * i, y + 8 * i, 8 + begin)
""",
        name="maths",
    )
    folder = tmp_path / "native"
    load_one(NativeStore(folder, pool), maths)
    script = tmp_path / "warm.py"
    script.write_text(
        "import sys, ctypes, numpy as np\n"
        "from engine.device import native\n"
        f"source = native.NativeSource('maths', {maths.source!r}, 'kernel')\n"
        "address = native.process_store().address(source)\n"
        "x = np.linspace(0.1, 3, 50); y = np.zeros(50); z = np.zeros(50)\n"
        "args = np.array([x.ctypes.data, y.ctypes.data, z.ctypes.data], np.int64)\n"
        "c = ctypes.c_int64\n"
        "ctypes.CFUNCTYPE(None, c, c, c)(address)(args.ctypes.data, 0, 50)\n"
        "assert native.process_store().compilations == 0, 'compiled'\n"
        "assert 'numba' not in sys.modules, 'imported numba'\n"
        "np.save(sys.argv[1], z)\n"
    )
    environment = {**os.environ, "GAMEGLUE_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    result = tmp_path / "z.npy"
    subprocess.run([sys.executable, str(script), str(result)], env=environment, check=True, timeout=300)
    x = np.linspace(0.1, 3, 50)
    erf = np.array([math.erf(v) for v in x])
    expected = np.exp(x) + np.tanh(x) + erf + np.log(x) + x**1.7 + np.fmod(x, 0.3)
    np.testing.assert_allclose(np.load(result), expected, rtol=1e-12)


@pytest.mark.parametrize("damage", ["flipped", "short", "empty", "other"])
def test_a_damaged_file_is_rebuilt(store: NativeStore, pool: CompilePool, damage: str) -> None:
    load_one(store, AXPY)
    path = file_of(store, AXPY)
    data = path.read_bytes()
    if damage == "flipped":
        path.write_bytes(data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
    elif damage == "short":
        path.write_bytes(data[:-1])
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        other = kernel("store_f32(y, i, 7)")
        load_one(store, other)
        shutil.copy(file_of(store, other), path)
    second = NativeStore(store.folder, pool)
    x, y = np.ones(4, np.float32), np.zeros(4, np.float32)
    run(load_one(second, AXPY), 4, x, y)
    np.testing.assert_array_equal(y, 2.5)
    assert second.compilations == 1
    assert path.read_bytes() != b""
    assert load_one(NativeStore(store.folder, pool), AXPY)


def test_key_and_file_name_hold_everything_that_the_code_depends_on(
    tmp_path: Path, pool: CompilePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = NativeSource("a", "text", "entry", "void(int64, int64, int64)")
    assert base.key == NativeSource("other name", "text", "entry", "void(int64, int64, int64)").key
    keys = {
        base.key,
        NativeSource("a", "text ", "entry").key,
        NativeSource("a", "text", "entry2").key,
        NativeSource("a", "text", "entry", "void(int64)").key,
    }
    assert len(keys) == 4
    store = NativeStore(tmp_path, pool)

    def path() -> Path | None:
        native.machine_identity.cache_clear()
        module._this_machine.cache_clear()
        return store.path(base.key)

    paths = {path()}
    for package in ("numba", "llvmlite"):
        monkeypatch.setattr(module, "version_text", lambda name, changed=package: f"{name}{name == changed}")
        paths.add(path())
    monkeypatch.undo()
    monkeypatch.setattr(module.llvm, "get_host_cpu_name", lambda: "another")
    paths.add(path())
    monkeypatch.undo()
    assert len(paths) == 4
    assert path() in paths


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        ("store_f32(y, i, undefined_name)", "undefined_name"),
        ("store_f32(y, i, 'text')", "refused"),
        ("assert i < 3", "needs Python at run time"),
        ("store_f64(y, i, absent(1.0))", "gameglue_no_such_function"),
        ("store_f32(y, i,", "SyntaxError"),
    ],
)
def test_a_refused_kernel_names_itself_and_shows_its_source(
    store: NativeStore, statements: str, said: str
) -> None:
    absent = "from numba import types\nabsent = types.ExternalFunction('gameglue_no_such_function', "
    source = kernel(statements, "gelu_7", absent + "types.float64(types.float64))")
    with pytest.raises(KernelCompileError) as caught:
        store.load([source])
    message = str(caught.value)
    assert said in message
    assert "gelu_7" in message
    line = next(line for line in message.splitlines() if line.endswith("| def kernel(args, begin, end):"))
    number = int(line.split("|")[0])
    assert source.whole_text.splitlines()[number - 1] == "def kernel(args, begin, end):"
    # One refusal does not spoil the child or the store.
    assert load_one(store, AXPY)


def test_the_good_kernels_of_a_batch_survive_a_bad_one(store: NativeStore) -> None:
    with pytest.raises(KernelCompileError):
        store.load([AXPY, kernel("nonsense(i)")])
    compiled = store.compilations
    assert load_one(store, AXPY)
    assert store.compilations == compiled


def test_preparing_does_not_wait(store: NativeStore) -> None:
    class NeverReady(CompilePool):
        """Accepts everything and compiles nothing."""

        def submit(self, *request: object, **options: object) -> Future[CompiledObject]:
            return Future()

    sources = [kernel(f"store_f32(y, i, {value})", f"k{value}") for value in range(3)]
    assert not NativeStore(store.folder, NeverReady()).prepare_async(sources).done()
    pending = store.prepare_async(sources)
    again = store.prepare_async(sources)
    seen: list[tuple[int, int]] = []
    addresses = pending.result(lambda ready, total: seen.append((ready, total)))
    assert pending.done()
    assert pending.progress == (3, 3)
    assert seen == sorted(seen)
    assert seen[-1] == (3, 3)
    assert again.result() == addresses
    assert store.compilations == 3
    y = np.zeros(2, np.float32)
    for value, source in enumerate(sources):
        run(addresses[source.key], 2, y, y)
        assert y.tolist() == [value, value]


def test_a_killed_child_is_replaced(tmp_path: Path) -> None:
    pool = CompilePool(limit=1)
    store = NativeStore(tmp_path, pool)
    load_one(store, AXPY)
    (child,) = pool._children
    child._process.kill()
    assert load_one(store, kernel("store_f32(y, i, 3)"))


def test_what_somebody_waits_for_is_compiled_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One child takes them in turn, and none before it is ready."""
    may_start = threading.Event()
    start = native_pool._Child.be_ready

    def be_ready(child: native_pool._Child) -> None:
        may_start.wait()
        start(child)

    order: list[str] = []
    compile_one = native_pool._Child.compile

    def note(child: native_pool._Child, request: native_pool.CompileRequest) -> native_pool.CompiledObject:
        order.extend(name for name in sources if name == request.name)  # other pools are at work, too
        return compile_one(child, request)

    monkeypatch.setattr(native_pool._Child, "be_ready", be_ready)
    monkeypatch.setattr(native_pool._Child, "compile", note)
    store = NativeStore(tmp_path, CompilePool(limit=1))
    sources = {name: kernel(f"store_f32(y, i, {n})", name) for n, name in enumerate("abcd")}
    store.prepare_ahead([sources["a"], sources["b"], sources["c"]])
    wanted = [store.prepare_async([sources[name]]) for name in "dc"]  # c is wanted after all
    may_start.set()
    for pending in wanted:
        pending.result()
    store.load([*sources.values()])
    assert "".join(order) == "cdab"
    assert store.compilations == 4


def test_nothing_is_compiled_ahead_in_the_process_itself(in_process: CompilePool, tmp_path: Path) -> None:
    store = NativeStore(tmp_path, in_process)
    store.prepare_ahead([kernel("store_f32(y, i, 5)")])
    assert store.compilations == 0


FORK = """
import os, sys
from pathlib import Path
from engine.device.native import NativeSource, NativeStore
from engine.device.native.pool import CompilePool
from engine.device.native.prelude import PRELUDE

text = PRELUDE + "\\n\\ndef nothing(args, begin, end):\\n    pass\\n"
source = NativeSource("nothing", text, "nothing")
store = NativeStore(Path(sys.argv[1]), CompilePool(limit=1))
if sys.argv[2] == "ready":
    store.load([NativeSource("first", text + "first = nothing", "first")])
    (running,) = store.pool._children
pending = store.prepare_async([source])
pid = os.fork()
assert store.load([source])[source.key]
if pid == 0:
    sys.exit(7)
pending.result()
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
if sys.argv[2] == "ready":
    assert store.pool._children == {running} and running._process.poll() is None
print("both")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("state", ["ready", "starting"])
def test_a_fork_does_not_wait_for_what_comes_to_its_parent(tmp_path: Path, state: str) -> None:
    """And its end leaves the parent's compiling process alone."""
    done = subprocess.run(
        [sys.executable, "-c", FORK, str(tmp_path), state],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "both\n"), done.stderr


class StopWaitingError(Exception):
    """In place of a wait that nothing would end."""


def test_a_game_is_left_a_core_until_it_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children are counted where they would be started; none is."""

    def stop(*_: object, **__: object) -> None:
        raise StopWaitingError

    monkeypatch.setattr(CompilePool, "_run", lambda pool: None)
    monkeypatch.setattr(module, "wait", stop)
    pool = CompilePool(limit=3)
    pool.reserve_core()
    pool.start_more_children()
    assert pool._threads == 0, "nothing waits"
    store = NativeStore(tmp_path, pool)
    pending = store.prepare_async([kernel(f"pass  # {n}") for n in range(5 * native_pool.KERNELS_PER_CHILD)])
    assert pool._threads == 2
    with ThreadPoolExecutor(1) as aside, pytest.raises(StopWaitingError):
        aside.submit(pending.result).result()
    assert pool._threads == 2, "what waits beside the frames has time"
    with pytest.raises(StopWaitingError):
        pending.result()
    assert pool._threads == 3


def test_a_game_elsewhere_is_left_a_core_for_good() -> None:
    pool = CompilePool(limit=4)
    for always in (True, False):  # as what warms up does, and then whatever it calls
        pool.reserve_core(always)
        assert pool._hurried == pool._limit == 3
    alone = CompilePool(limit=1)
    alone.reserve_core(always=True)
    assert alone._hurried == alone._limit == 1


def test_a_program_that_cannot_start_children_compiles_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    frozen = CompilePool()
    monkeypatch.setattr(native_pool, "_Child", lambda: pytest.fail("started a child"))
    y = np.zeros(2, np.float32)
    run(load_one(NativeStore(tmp_path, frozen), kernel("store_f32(y, i, 4)")), 2, y, y)
    assert y.tolist() == [4, 4]
    with pytest.raises(KernelCompileError):
        NativeStore(tmp_path, frozen).load([kernel("undefined_name(i)")])


def test_a_folder_that_cannot_be_written_costs_only_time(pool: CompilePool, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    y = np.zeros(2, np.float32)
    run(load_one(NativeStore(blocked, pool), kernel("store_f32(y, i, 5)")), 2, y, y)
    assert y.tolist() == [5, 5]
