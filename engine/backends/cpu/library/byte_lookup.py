# mypy: allow-untyped-defs, allow-incomplete-defs
"""Table lookup of whole vectors of bytes, in tables of 256 entries.

x86 looks a vector up in 16 bytes at once, by the low bits of its elements: 0 where an element is negative.
"""

from llvmlite import ir

from engine.backends.cpu.library.llvm_intrinsic import llvm_intrinsic
from engine.backends.cpu.library.operations import _output_scope

_BYTE = ir.IntType(8)
_SHUFFLES = {32: "llvm.x86.avx2.pshuf.b", 64: "llvm.x86.avx512.pshuf.b.512"}


def _parts(table, lanes):
    """The 16 parts of a table, each as a vector that repeats it."""
    found = []
    for k in range(16):
        part = (table + 16 * k).read(ir.VectorType(_BYTE, 16), align=1)
        # What a loop stores does not change them.
        part.value.set_metadata("noalias", _output_scope(part.builder.module))
        found.append(part.shuffled(None, [*range(16)] * (lanes // 16)))
    return found


def make_byte_lookup(lanes):
    """byte_lookup(target, source, table): `lanes` bytes by their entries in the table."""
    kind = ir.VectorType(_BYTE, lanes)

    @llvm_intrinsic()
    def byte_lookup(target, source, table):
        codes, parts = source.read(kind, align=1), _parts(table, lanes)
        total = codes.constant(0)
        for place, half in ((codes, parts[:8]), (codes ^ -128, parts[8:])):
            # An element meets all parts up to its own, of which only that remains: the others come twice.
            before = codes.constant(0)
            for part in half:
                total ^= (part ^ before).named(_SHUFFLES[lanes], kind, place)
                place, before = place.call("llvm.ssub.sat", 16), part
        stored = target.builder.store(total.value, target.at(kind), align=1)
        stored.set_metadata("alias.scope", _output_scope(target.builder.module))

    return byte_lookup
