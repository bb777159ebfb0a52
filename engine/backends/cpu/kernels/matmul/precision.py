"""Low-precision arithmetic supported by this processor, for matrix products and convolutions."""

from __future__ import annotations

import ctypes
import platform
import sys
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

import llvmlite.binding as llvm

from engine.backends.base import Precision
from engine.base.errors import DeviceError, InputError

Unit = Literal["amx", "avx512", "avx2"]
"""What multiplies: a unit for tiles of matrices, or dot products of vectors of 64 or 32 bytes."""

_NEEDED: dict[Precision, dict[Unit, tuple[str, ...]]] = {
    "bf16": {"amx": ("amx-tile", "amx-bf16", "avx512bf16"), "avx512": ("avx512f", "avx512bf16")},
    "int8": {
        "amx": ("amx-tile", "amx-int8", "avx512f"),
        "avx512": ("avx512f", "avx512vnni"),
        "avx2": ("avx2", "fma", "avxvnni"),
    },
}
_WANTED: dict[Precision, str] = {
    "bf16": "AMX-BF16 or AVX512_BF16",
    "int8": "AMX-INT8, AVX512_VNNI or AVX-VNNI",
}

# Linux, x86-64: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA).
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


@dataclass(frozen=True)
class Arithmetic:
    """A reduced precision and the unit that computes in it.

    A group of 64 bytes of a row is multiplied at a time. Results come in blocks of `rows`, or of `few_rows`
    where no more are left.
    """

    precision: Precision
    unit: Unit

    @property
    def bytewise(self) -> bool:
        """Whether elements are bytes, with a scale and a zero point for many of them."""
        return self.precision == "int8"

    @property
    def group(self) -> int:
        """Elements of a row that are multiplied at a time."""
        return 64 if self.bytewise else 32

    @property
    def lanes(self) -> int:
        """Sums in a vector."""
        return 8 if self.unit == "avx2" else 16

    @property
    def rows(self) -> int:
        """Rows of a block of results."""
        return {"amx": 32, "avx512": 8, "avx2": 3}[self.unit]

    @property
    def few_rows(self) -> int:
        """Number of rows in the last block."""
        return 16 if self.unit == "amx" else 1


def arithmetics_for(precision: Precision) -> tuple[Arithmetic, ...]:
    """The arithmetics for a precision, fastest first; more exact ones follow for other layers.

    Raises `InputError` for an unknown precision, and `DeviceError` where the processor cannot do it.
    """
    if precision not in get_args(Precision):
        known = ", ".join(repr(p) for p in get_args(Precision))
        raise InputError(f"precision is {precision!r}; one of {known}")
    if precision == "float32":
        return ()
    units = matrix_units(precision)
    if not units:
        raise DeviceError(
            f"precision={precision!r} needs a processor with {_WANTED[precision]}, and this one ("
            f"{llvm.get_host_cpu_name()}) has none; precision='float32' runs anywhere"
        )
    finer = matrix_units("bf16")[:1] if precision == "int8" else ()
    return (Arithmetic(precision, units[0]), *(Arithmetic("bf16", unit) for unit in finer))


def matrix_units(precision: Precision) -> tuple[Unit, ...]:
    """The units of this processor that compute in a reduced precision, the fastest first.

    AVX512_BF16 pays where a processor starts such a product every cycle or two; on those that have AMX too it
    was measured to take 1.7 to 4 times as long as float32, and the matrix unit a quarter as long.
    """
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return ()
    features = llvm.get_host_cpu_features()
    found = [unit for unit, names in _NEEDED[precision].items() if all(features.get(n) for n in names)]
    return tuple(unit for unit in found if unit != "amx" or _may_use_tiles())


@cache
def _may_use_tiles() -> bool:
    """Whether the system lets this process use the matrix unit; on Linux it has to be asked once."""
    if not sys.platform.startswith("linux"):
        return False
    return int(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)) == 0
