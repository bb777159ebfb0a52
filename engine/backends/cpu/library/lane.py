"""LLVM values with Python's operators, so that code generation reads like arithmetic.

A `Lane` is a scalar or a vector. Python numbers combined with a lane become constants of its type.
"""

from typing import Any

from llvmlite import ir


class Lane:
    """A value under construction; `signed` says how an integer is read."""

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

    def like(self, value: Any) -> "Lane":
        """The same kind of lane over another LLVM value."""
        return Lane(self.builder, value, self.signed)

    def typed(self, element: Any) -> Any:
        """The LLVM type with as many elements of another kind."""
        return ir.VectorType(element, self.type.count) if isinstance(self.type, ir.VectorType) else element

    def constant(self, number: Any) -> "Lane":
        """A number in every element; lanes pass through."""
        if isinstance(number, Lane):
            return number
        if isinstance(self.type, ir.VectorType):
            return self.like(ir.Constant(self.type, [ir.Constant(self.element, number)] * self.type.count))
        return self.like(ir.Constant(self.type, number))

    def _both(self, other: Any, float_step: str, integer_step: str) -> "Lane":
        other = self.constant(other)
        step = float_step if self.is_float else integer_step
        return self.like(getattr(self.builder, step)(self.value, other.value))

    def __add__(self, other: Any) -> "Lane":
        return self._both(other, "fadd", "add")

    def __sub__(self, other: Any) -> "Lane":
        return self._both(other, "fsub", "sub")

    def __mul__(self, other: Any) -> "Lane":
        return self._both(other, "fmul", "mul")

    def __truediv__(self, other: Any) -> "Lane":
        return self._both(other, "fdiv", "sdiv" if self.signed else "udiv")

    def __mod__(self, other: Any) -> "Lane":
        return self._both(other, "frem", "srem" if self.signed else "urem")

    def __and__(self, other: Any) -> "Lane":
        return self._both(other, "", "and_")

    def __or__(self, other: Any) -> "Lane":
        return self._both(other, "", "or_")

    def __xor__(self, other: Any) -> "Lane":
        return self._both(other, "", "xor")

    def __lshift__(self, other: Any) -> "Lane":
        return self._both(other, "", "shl")

    def __rshift__(self, other: Any) -> "Lane":
        return self._both(other, "", "ashr" if self.signed else "lshr")

    def __neg__(self) -> "Lane":
        return self.like(self.builder.fneg(self.value)) if self.is_float else self.constant(0) - self

    def compare(self, symbol: str, other: Any) -> "Lane":
        """A lane of bits: `<`, `<=`, `==`, `!=`, `>=` or `>`. With a NaN only `!=` holds."""
        other = self.constant(other)
        if self.is_float:
            step = self.builder.fcmp_unordered if symbol == "!=" else self.builder.fcmp_ordered
        else:
            step = self.builder.icmp_signed if self.signed else self.builder.icmp_unsigned
        return Lane(self.builder, step(symbol, self.value, other.value), False)

    def __lt__(self, other: Any) -> "Lane":
        return self.compare("<", other)

    def __le__(self, other: Any) -> "Lane":
        return self.compare("<=", other)

    def __gt__(self, other: Any) -> "Lane":
        return self.compare(">", other)

    def __ge__(self, other: Any) -> "Lane":
        return self.compare(">=", other)

    def equals(self, other: Any) -> "Lane":
        """Where both are equal."""
        return self.compare("==", other)

    def differs(self, other: Any) -> "Lane":
        """Where the two differ; a NaN differs from everything."""
        return self.compare("!=", other)

    def where(self, condition: "Lane", other: Any) -> "Lane":
        """This lane where `condition` holds, else `other`."""
        return self.like(self.builder.select(condition.value, self.value, self.constant(other).value))

    def times_plus(self, factor: Any, term: Any) -> "Lane":
        """self * factor + term, rounded once where the processor can."""
        product = self.builder.fmul(self.value, self.constant(factor).value, flags=("contract",))
        return self.like(self.builder.fadd(product, self.constant(term).value, flags=("contract",)))

    def polynomial(self, *coefficients: float) -> "Lane":
        """Horner's scheme; the coefficient of the highest power comes first."""
        total = self.constant(coefficients[0])
        for coefficient in coefficients[1:]:
            total = total.times_plus(self, coefficient)
        return total

    def call(self, name: str, *others: Any) -> "Lane":
        """An LLVM intrinsic that is overloaded on this lane's type."""
        kind = self.type
        signature = ir.FunctionType(kind, [kind] * (1 + len(others)))
        # llvmlite has no names of intrinsics on vectors.
        vector = f"v{kind.count}" if isinstance(kind, ir.VectorType) else ""
        name = f"{name}.{vector}{self.element.intrinsic_name}"
        function = self.builder.module.globals.get(name)
        if function is None:
            function = ir.Function(self.builder.module, signature, name)
        return self.like(self.builder.call(function, [self.value, *(self.constant(x).value for x in others)]))

    def external(self, name: str, *others: "Lane") -> "Lane":
        """A function of the C library on scalars of this type."""
        kind = ir.FunctionType(self.type, [self.type] * (1 + len(others)))
        function = self.builder.module.globals.get(name)
        if function is None:
            function = ir.Function(self.builder.module, kind, name)
            function.attributes.add("nounwind")
            function.attributes.add("readnone")
        return self.like(self.builder.call(function, [self.value, *(x.value for x in others)]))

    def magnitude(self) -> "Lane":
        """The absolute value; the lowest integer stays as it is."""
        if self.is_float:
            return self.call("llvm.fabs")
        return (-self).where(self < 0, self) if self.signed else self

    def bits(self) -> "Lane":
        """The same bits as an integer of the same width."""
        element = ir.IntType(32 if isinstance(self.element, ir.FloatType) else 64)
        return Lane(self.builder, self.builder.bitcast(self.value, self.typed(element)))

    def saturated(self, target: Any, element: Any, signed: bool) -> "Lane":
        """A float as an integer. LLVM's own saturating conversions do not become vectors."""
        low = -(2.0 ** (element.width - 1)) if signed else 0.0
        high = 2.0 ** (element.width - signed)
        inside = (self >= low) & (self < high)
        step = self.builder.fptosi if signed else self.builder.fptoui
        value = Lane(self.builder, step(self.where(inside, self.constant(0.0)).value, target), signed)
        lowest, highest = value.constant(int(low)), value.constant(int(high) - 1)
        outside = highest.where(self > 0.0, lowest.where(self < 0.0, value.constant(0)))
        return value.where(inside, outside)

    def bounded(self, element: Any) -> "Lane":
        """A float within the bounds of a signed integer type, or NaN, as such an integer; NaN becomes 0."""
        known = self.where(self.equals(self), self.constant(0.0))
        return Lane(self.builder, self.builder.fptosi(known.value, self.typed(element)))

    def as_float32(self) -> "Lane":
        """The same 32 bits as a float32."""
        return Lane(self.builder, self.builder.bitcast(self.value, self.typed(ir.FloatType())))

    def to(self, element: Any, signed: bool = True) -> "Lane":
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
        return Lane(b, value, signed)
