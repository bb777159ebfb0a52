"""Compiles a kernel's source to an object file: numba for the typed code, LLVM for the rest.

It imports numba, and nothing of the engine: run as a program (by `engine.device.native.compiler_process`) it
is the process that compiles while the game runs. There it reads one JSON request a line (`source`, `entry`,
`signature`, `symbol`, `name`) and answers each with one line: `object` (base64) and `externals`, or `error`.
Before them comes a line with `shared_above`, whose answer says that this process is ready.
`engine.device.native.pool` is the other end.
"""

from __future__ import annotations

import base64
import contextlib
import gc
import json
import os
import signal
import struct
import sys
import traceback
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

import llvmlite.binding as llvm
from numba.core import config, errors, sigutils
from numba.core.ccallback import CFunc
from numba.core.compiler_lock import global_compiler_lock
from numba.core.types.functions import BaseFunction

OPTIONS = {"nopython": True, "fastmath": {"contract"}, "error_model": "numpy", "boundscheck": False}


_ELF_SYMBOL_TABLE = 2


class CompileFailure(Exception):
    """The text is not a kernel: a Python or numba error, or code that needs Python at run time."""


def target_machine(processor: str | None = None) -> Any:
    """LLVM's target machine for this very CPU, with the options that MCJIT needs (as numba chooses them).

    processor: LLVM's name of another one of the same architecture, as `x86-64-v3`.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # kernels may hold inline assembly
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features() if processor is None else llvm.FeatureMap()
    if features.get("avx512f") or processor == "x86-64-v4":
        # Loops that LLVM vectorises itself use whole registers, as the tiles do; it would take halves.
        features["prefer-256-bit"] = False
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name() if processor is None else processor,
        features=features.flatten(),
        opt=3,
        reloc="static" if target.name.startswith("x86") else "default",
        codemodel="jitdefault",
        jit=True,
    )


class Compiler:
    """Compiles one source after another; a common beginning is executed once.

    `shared_above` is a line that texts may hold: what precedes it is the same in many (intrinsics and
    helpers, which numba would otherwise have to make and type again for every kernel).
    """

    def __init__(self, shared_above: str, processor: str | None = None) -> None:
        """`processor`: as `target_machine` takes it."""
        self._shared_above = shared_above
        self._shared: dict[str, dict[str, Any]] = {"": {}}
        self._machine = target_machine(processor)

    def compile(
        self, name: str, source: str, entry: str, signature: str, symbol: str
    ) -> tuple[bytes, list[str]]:
        """The object file that defines `symbol`, and the names it needs from the process.

        Raises `CompileFailure`.
        """
        try:
            with _plainly():
                function = self._execute(name, source)[entry]
                parsed = sigutils.normalize_signature(signature)
                # The decorator would also link the code into this process; `CFunc` alone stops before that.
                callback: Any = CFunc(function, parsed, locals={}, options=dict(OPTIONS))
                compiled = callback._compile_uncached()
        except (errors.NumbaError, errors.UnsupportedBytecodeError, SyntaxError) as error:
            raise CompileFailure(f"{type(error).__name__}: {error}") from error
        except Exception as error:  # the text itself runs here, and may raise anything
            raise CompileFailure(traceback.format_exc()) from error
        wrapper = compiled.fndesc.llvm_cfunc_wrapper_name
        module = compiled.library._final_module
        for library in dict.fromkeys(compiled.library._linking_libraries):
            module.link_in(library._get_module_for_linking(), preserve=True)
        self._optimise(module, wrapper, symbol)
        _refuse_python(module)
        code = self._machine.emit_object(module)
        externals = undefined_symbols(code) if code.startswith(b"\x7fELF") else _declared(module)
        missing = [external for external in externals if not llvm.address_of_symbol(external)]
        if missing:
            raise CompileFailure(
                f"the kernel calls {', '.join(missing)}, which no library of the process has; "
                "write it out as arithmetic"
            )
        return code, externals

    def _execute(self, name: str, source: str) -> dict[str, Any]:
        shared, mark, text = source.rpartition(self._shared_above)
        shared += mark
        names = {**self._shared_names(shared), "__name__": f"gameglue_kernel_{name}"}
        # Line numbers in messages count from the start of the whole source.
        exec(compile("\n" * shared.count("\n") + text, f"<kernel {name}>", "exec"), names)
        return names

    def _shared_names(self, text: str) -> dict[str, Any]:
        """The names that the text defines, which is empty or ends with the line that lists them."""
        names = self._shared.get(text)
        if names is None:
            before, mark, last = text.removesuffix(self._shared_above).rpartition(self._shared_above)
            names = {**self._shared_names(before + mark), "__name__": "gameglue_shared"}
            exec(compile(last, "<shared>", "exec"), names)
            self._shared[text] = names
        return names

    def _optimise(self, module: Any, wrapper: str, symbol: str) -> None:
        """Export one symbol and make everything else internal, so that dead code is removed.

        Numba's wrapper reports a raised exception through Python. Once the kernel is inlined and cannot
        raise, that code goes, and with it every reference to Python.
        """
        module.get_function(wrapper).name = symbol
        for value in [*module.functions, *module.global_variables]:
            if value.name != symbol and not value.is_declaration:
                value.linkage = "internal"
        # Twice: the first run inlines and finds that nothing raises, the second works on what is left.
        for is_last in (False, True):
            tuning = llvm.create_pipeline_tuning_options(speed_level=3 if is_last else 2)
            tuning.loop_vectorization = tuning.slp_vectorization = is_last
            tuning.loop_interleaving = tuning.loop_unrolling = is_last
            builder = llvm.create_pass_builder(self._machine, tuning)
            builder.getModulePassManager().run(module, builder)
        module.verify()


@contextlib.contextmanager
def _plainly() -> Iterator[None]:
    """Context manager: numba skips its own optimisation and caches the types of calls.

    It leaves optimising to others, as it would do so twice for every helper. And it finds out only once what
    a call with arguments of such types is: it would ask a dozen rules about every `+` of two integers, for a
    fifth of the time that a kernel takes.
    """
    with global_compiler_lock:
        settings: Any = config
        functions: Any = BaseFunction
        level = settings.OPT
        settings.OPT = type(level)(0)
        functions.get_call_type = _cached_call_type
        try:
            yield
        finally:
            settings.OPT = level
            functions.get_call_type = _call_type


def _cached_call_type(function: Any, context: Any, args: tuple[Any, ...], kws: Mapping[str, Any]) -> Any:
    if kws:
        return _call_type(function, context, args, kws)
    found = _call_types.get((function, args))
    if found is None:
        found = _call_types[function, args] = _call_type(function, context, args, kws)
    return found


_call_type: Any = BaseFunction.get_call_type
_call_types: dict[tuple[Any, tuple[Any, ...]], Any] = {}


def _declared(module: Any) -> list[str]:
    values = [*module.functions, *module.global_variables]
    return sorted(v.name for v in values if v.is_declaration and not v.name.startswith("llvm."))


def _refuse_python(module: Any) -> None:
    foreign = [name for name in _declared(module) if name.startswith(("Py", "_Py", "NRT_", "numba_", "_ZN"))]
    if foreign:
        raise CompileFailure(
            f"the kernel needs Python at run time ({', '.join(foreign)}): "
            "it may raise, allocate an array, or use a Python object"
        )


def undefined_symbols(code: bytes) -> list[str]:
    """The names that a 64-bit ELF object needs from elsewhere.

    The module's declarations are not enough: code generation adds calls of its own (`llvm.pow` becomes `pow`,
    a remainder `fmod`, an integer power `__powidf2`).
    """
    table = struct.unpack_from("<Q", code, 0x28)[0]
    entry_size, count = struct.unpack_from("<HH", code, 0x3A)
    names: set[str] = set()
    for position in range(table, table + count * entry_size, entry_size):
        if struct.unpack_from("<I", code, position + 4)[0] != _ELF_SYMBOL_TABLE:
            continue
        offset, size, link = struct.unpack_from("<QQI", code, position + 24)
        strings = struct.unpack_from("<Q", code, table + link * entry_size + 24)[0]
        for name, _, _, section in struct.iter_unpack("<IBBH16x", code[offset : offset + size]):
            if section == 0 and name != 0:
                start = strings + name
                names.add(code[start : code.index(b"\0", start)].decode())
    return sorted(names)


def prove_linkable(code: bytes) -> None:
    """Links the object once: LLVM ends the process when a symbol is missing, and a child may die of that."""
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()


def serve(requests: TextIO, replies: TextIO, shared_above: str) -> None:
    """Answers requests until the other end closes."""
    compiler = Compiler(shared_above)
    _send(replies, {})
    for line in requests:
        try:
            code, externals = compiler.compile(**json.loads(line))
            prove_linkable(code)
            reply: dict[str, Any] = {"object": base64.b64encode(code).decode("ascii"), "externals": externals}
        except CompileFailure as error:
            reply = {"error": str(error)}
        _send(replies, reply)


def _send(replies: TextIO, reply: dict[str, Any]) -> None:
    replies.write(json.dumps(reply) + "\n")
    replies.flush()


def main() -> None:
    """The child process: standard output carries replies, other output goes to standard error."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # Ctrl-C reaches the whole group; the parent ends this process by closing its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Compilers make many objects and few circles of them; what was imported stays anyway.
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    serve(sys.stdin, replies, json.loads(sys.stdin.readline())["shared_above"])


if __name__ == "__main__":
    main()
