"""`LLVMValue`: an LLVM value with Python's operators, so that code generation reads like arithmetic.

It is a scalar or a vector. Python numbers combined with it become constants of its type. An int64 is also an
address, in bytes.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from llvmlite import ir


def _bytes_of(kind: Any) -> int:
    """What a value of an LLVM type takes in memory."""
    if isinstance(kind, ir.VectorType):
        return kind.count * _bytes_of(kind.element)
    if isinstance(kind, ir.IntType):
        return kind.width // 8
    return 8 if isinstance(kind, ir.DoubleType) else 2 if isinstance(kind, ir.HalfType) else 4


class LLVMValue:
    """An LLVM value; `signed` is the interpretation of integers."""

    __slots__ = ("builder", "signed", "value")

    def __init__(self, builder: Any, value: Any, signed: bool = True) -> None:
        self.builder = builder
        self.value = value
        self.signed = signed

    @property
    def type(self) -> Any:
        """The LLVM type, a vector type included."""
        return self.value.type

    @property
    def element(self) -> Any:
        """The LLVM type of one element."""
        return self.type.element if isinstance(self.type, ir.VectorType) else self.type

    @property
    def is_float(self) -> bool:
        """Whether elements are float32 or float64."""
        return isinstance(self.element, (ir.FloatType, ir.DoubleType))

    @property
    def width(self) -> int:
        """Bits of an integer element."""
        return self.element.width

    def like(self, value: Any) -> "LLVMValue":
        """Wrap another LLVM value with the same element type."""
        return LLVMValue(self.builder, value, self.signed)

    def typed(self, element: Any) -> Any:
        """The LLVM type with as many elements of another kind."""
        return ir.VectorType(element, self.type.count) if isinstance(self.type, ir.VectorType) else element

    def constant(self, number: Any) -> "LLVMValue":
        """A number in every element; values pass through."""
        return number if isinstance(number, LLVMValue) else self.of(self.type, number)

    def of(self, kind: Any, number: Any) -> "LLVMValue":
        """A number in every element of another LLVM type, or a number for each."""
        if isinstance(kind, ir.VectorType):
            numbers = number if isinstance(number, list) else [number] * kind.count
            number = [ir.Constant(kind.element, each) for each in numbers]
        return self.like(ir.Constant(kind, number))

    # Memory, where the value is an address

    def at(self, kind: Any) -> Any:
        """LLVM's pointer to a value of a type."""
        return self.builder.inttoptr(self.value, kind.as_pointer())

    def read(self, kind: Any, align: int = 4) -> "LLVMValue":
        """The value of an LLVM type that lies there."""
        return LLVMValue(self.builder, self.builder.load(self.at(kind), align=align))

    def read_row(self, kind: Any, count: int) -> list["LLVMValue"]:
        """So many vectors that follow each other."""
        return [(self + k * _bytes_of(kind)).read(kind) for k in range(count)]

    def word(self, number: int = 0) -> "LLVMValue":
        """An int64 from there, so many words behind."""
        return (self + 8 * number).read(ir.IntType(64), align=8)

    def write(self, other: "LLVMValue", align: int = 4) -> None:
        """Store a value there."""
        self.builder.store(other.value, self.at(other.type), align=align)

    def write_row(self, values: Sequence["LLVMValue"]) -> None:
        """Store values of one type, one behind the other."""
        for k, value in enumerate(values):
            (self + k * _bytes_of(value.type)).write(value)

    # The order of elements

    def spread(self, count: int) -> "LLVMValue":
        """A vector with this number in every element."""
        kind = ir.VectorType(self.type, count)
        place = ir.Constant(ir.IntType(32), 0)
        one = self.builder.insert_element(ir.Constant(kind, ir.Undefined), self.value, place)
        return LLVMValue(self.builder, one).shuffled(None, [0] * count)

    def shuffled(self, other: "LLVMValue | None", order: Iterable[int]) -> "LLVMValue":
        """Elements of this vector and of another one behind it, by their numbers."""
        places = list(order)
        second = ir.Constant(self.type, ir.Undefined) if other is None else other.value
        mask = ir.Constant(ir.VectorType(ir.IntType(32), len(places)), places)
        return self.like(self.builder.shuffle_vector(self.value, second, mask))

    def first(self) -> "LLVMValue":
        """A vector's first element."""
        return self.like(self.builder.extract_element(self.value, ir.Constant(ir.IntType(32), 0)))

    # Arithmetic

    def _both(self, other: Any, float_step: str, integer_step: str) -> "LLVMValue":
        other = self.constant(other)
        step = float_step if self.is_float else integer_step
        return self.like(getattr(self.builder, step)(self.value, other.value))

    def __add__(self, other: Any) -> "LLVMValue":
        return self._both(other, "fadd", "add")

    def __sub__(self, other: Any) -> "LLVMValue":
        return self._both(other, "fsub", "sub")

    def __mul__(self, other: Any) -> "LLVMValue":
        return self._both(other, "fmul", "mul")

    def __truediv__(self, other: Any) -> "LLVMValue":
        return self._both(other, "fdiv", "sdiv" if self.signed else "udiv")

    def __mod__(self, other: Any) -> "LLVMValue":
        return self._both(other, "frem", "srem" if self.signed else "urem")

    def __and__(self, other: Any) -> "LLVMValue":
        return self._both(other, "", "and_")

    def __or__(self, other: Any) -> "LLVMValue":
        return self._both(other, "", "or_")

    def __xor__(self, other: Any) -> "LLVMValue":
        return self._both(other, "", "xor")

    def __lshift__(self, other: Any) -> "LLVMValue":
        return self._both(other, "", "shl")

    def __rshift__(self, other: Any) -> "LLVMValue":
        return self._both(other, "", "ashr" if self.signed else "lshr")

    def __neg__(self) -> "LLVMValue":
        return self.like(self.builder.fneg(self.value)) if self.is_float else self.constant(0) - self

    def compare(self, symbol: str, other: Any) -> "LLVMValue":
        """Elementwise comparison: `<`, `<=`, `==`, `!=`, `>=` or `>`. With a NaN only `!=` holds."""
        other = self.constant(other)
        if self.is_float:
            step = self.builder.fcmp_unordered if symbol == "!=" else self.builder.fcmp_ordered
        else:
            step = self.builder.icmp_signed if self.signed else self.builder.icmp_unsigned
        return LLVMValue(self.builder, step(symbol, self.value, other.value), False)

    def __lt__(self, other: Any) -> "LLVMValue":
        return self.compare("<", other)

    def __le__(self, other: Any) -> "LLVMValue":
        return self.compare("<=", other)

    def __gt__(self, other: Any) -> "LLVMValue":
        return self.compare(">", other)

    def __ge__(self, other: Any) -> "LLVMValue":
        return self.compare(">=", other)

    def equals(self, other: Any) -> "LLVMValue":
        """Elementwise equality."""
        return self.compare("==", other)

    def differs(self, other: Any) -> "LLVMValue":
        """Elementwise inequality; NaN differs from everything."""
        return self.compare("!=", other)

    def unordered(self, other: "LLVMValue") -> "LLVMValue":
        """Where either is a NaN."""
        return LLVMValue(self.builder, self.builder.fcmp_unordered("uno", self.value, other.value), False)

    def where(self, condition: "LLVMValue", other: Any) -> "LLVMValue":
        """This value where `condition` holds, else `other`."""
        return self.like(self.builder.select(condition.value, self.value, self.constant(other).value))

    def extreme(self, symbol: str, other: Any) -> "LLVMValue":
        """The larger (`>`) or smaller (`<`) of two floats; NaN if either is."""
        # The comparison comes first, of which LLVM makes faster reductions. With a constant on the left, the
        # test for NaN vanishes, and one instruction remains.
        further = self.compare(symbol, other)
        return self.where(self.differs(self), self.where(further, other))

    def times_plus(self, factor: Any, term: Any) -> "LLVMValue":
        """self * factor + term, fused if the processor can."""
        product = self.builder.fmul(self.value, self.constant(factor).value, flags=("contract",))
        return self.like(self.builder.fadd(product, self.constant(term).value, flags=("contract",)))

    def polynomial(self, *coefficients: float) -> "LLVMValue":
        """Horner's scheme; the coefficient of the highest power comes first."""
        total = self.constant(coefficients[0])
        for coefficient in coefficients[1:]:
            total = total.times_plus(self, coefficient)
        return total

    def call(self, name: str, *others: Any) -> "LLVMValue":
        """An LLVM intrinsic that is overloaded on this value's type."""
        # llvmlite has no names of intrinsics on vectors.
        vector = f"v{self.type.count}" if isinstance(self.type, ir.VectorType) else ""
        name = f"{name}.{vector}{self.element.intrinsic_name}"
        return self.like(self.named(name, self.type, *map(self.constant, others)).value)

    def named(self, name: str, result: Any, *others: "LLVMValue", pure: bool = False) -> "LLVMValue":
        """A function by its name: LLVM's, a processor's or, `pure`, the C library's."""
        given = (self, *others)
        function = self.builder.module.globals.get(name)
        if function is None:
            kind = ir.FunctionType(result, [value.type for value in given])
            function = ir.Function(self.builder.module, kind, name)
            for attribute in ("nounwind", "readnone") if pure else ():
                function.attributes.add(attribute)
        return LLVMValue(self.builder, self.builder.call(function, [value.value for value in given]))

    def magnitude(self) -> "LLVMValue":
        """The absolute value; the smallest integer is unchanged."""
        if self.is_float:
            return self.call("llvm.fabs")
        return (-self).where(self < 0, self) if self.signed else self

    def bits(self) -> "LLVMValue":
        """The same bits as an integer of the same width."""
        return self.seen_as(self.typed(ir.IntType(32 if isinstance(self.element, ir.FloatType) else 64)))

    def seen_as(self, kind: Any) -> "LLVMValue":
        """The same bits as another LLVM type."""
        return LLVMValue(self.builder, self.builder.bitcast(self.value, kind))

    def saturated(self, target: Any, element: Any, signed: bool) -> "LLVMValue":
        """A float as an integer. LLVM's own saturating conversions do not become vectors."""
        low = -(2.0 ** (element.width - 1)) if signed else 0.0
        high = 2.0 ** (element.width - signed)
        inside = (self >= low) & (self < high)
        step = self.builder.fptosi if signed else self.builder.fptoui
        value = LLVMValue(self.builder, step(self.where(inside, self.constant(0.0)).value, target), signed)
        lowest, highest = value.constant(int(low)), value.constant(int(high) - 1)
        outside = highest.where(self > 0.0, lowest.where(self < 0.0, value.constant(0)))
        return value.where(inside, outside)

    def bounded(self, element: Any) -> "LLVMValue":
        """A float within the bounds of a signed integer type, or NaN, as such an integer; NaN becomes 0."""
        known = self.where(self.equals(self), self.constant(0.0))
        return LLVMValue(self.builder, self.builder.fptosi(known.value, self.typed(element)))

    def as_float32(self) -> "LLVMValue":
        """The same 32 bits as a float32."""
        return self.seen_as(self.typed(ir.FloatType()))

    def to(self, element: Any, signed: bool = True) -> "LLVMValue":
        """Convert elements: floats are truncated and saturate (NaN becomes 0), integers wrap."""
        b, target = self.builder, self.typed(element)
        to_float = isinstance(element, (ir.FloatType, ir.DoubleType))
        if self.element == element:
            value = self.value
        elif self.is_float and to_float:
            value = (
                b.fpext(self.value, target)
                if isinstance(element, ir.DoubleType)
                else b.fptrunc(self.value, target)
            )
        elif element == ir.IntType(1):
            return self.differs(0)
        elif self.is_float:
            return self.saturated(target, element, signed)
        elif to_float:
            unsigned = not self.signed or self.element == ir.IntType(1)
            value = b.uitofp(self.value, target) if unsigned else b.sitofp(self.value, target)
        elif self.width > element.width:
            value = b.trunc(self.value, target)
        else:
            unsigned = not self.signed or self.width == 1
            value = b.zext(self.value, target) if unsigned else b.sext(self.value, target)
        return LLVMValue(b, value, signed)
