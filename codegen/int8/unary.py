from __future__ import annotations

import math
from collections.abc import Callable

from codegen.ir.real import Composite, Unary
from codegen.numerics import reference as numeric

Function = Callable[[float], float]


def with_constant(kind: str, value: float, swapped: bool) -> Unary:
    """x kind value (or value kind x where swapped) as a function of x."""
    return Unary(f"{kind}Const", (("value", value), ("swapped", float(swapped))))


def apply_pair(kind: str, a: float, b: float) -> float:
    """a kind b in float64; what is undefined becomes NaN or an infinity, as in IEEE arithmetic."""
    try:
        return PAIRS[kind](a, b)
    except ZeroDivisionError:
        return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)
    except OverflowError:
        return math.inf


def _power(a: float, b: float) -> float:
    """IEEE 754 pow: no errors, but infinities and NaN (math.pow raises for 0 to a negative power, and overflows)."""
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ValueError:
        if a == 0:
            return math.copysign(math.inf, a) if b % 2 == 1 else math.inf
        return math.nan


PAIRS: dict[str, Callable[[float, float], float]] = {
    "Add": lambda a, b: a + b,
    "Sum": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": lambda a, b: a / b,
    "Max": max,
    "Min": min,
    "Pow": _power,
    "PRelu": lambda a, b: a if a >= 0 else a * b,
}


def is_clamp(op: Unary) -> bool:
    """Relu and Clip: monotone, and equal to a clamp of the codes after rounding."""
    return op.kind in ("Relu", "Clip")


def sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x))


def _same(x: float) -> float:
    return x


def _exp(x: float) -> float:
    return math.exp(x) if x < 709.0 else math.inf


def _log(x: float) -> float:
    return math.log(x) if x > 0 else (-math.inf if x == 0 else math.nan)


def _gelu(x: float, tanh: bool) -> float:
    if tanh:
        return 0.5 * x * (1.0 + math.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1.0 + math.erf(x / math.sqrt(2.0)))


def function_of(op: Unary) -> Function:
    """The function of a Unary. Raises KeyError for kinds that have none."""
    p = dict(op.params)
    if isinstance(op, Composite):
        left, right = [
            numeric.chain(*(function_of(f) for f in side)) if side else _same for side in (op.left, op.right)
        ]
        return lambda x: apply_pair(op.kind, left(x), right(x))
    if op.kind.endswith("Const"):
        kind, value = op.kind.removesuffix("Const"), p["value"]
        if p["swapped"]:
            return lambda x: apply_pair(kind, value, x)
        return lambda x: apply_pair(kind, x, value)
    table: dict[str, Function] = {
        "Relu": lambda x: max(x, 0.0),
        "Clip": lambda x: min(max(x, p.get("min", -math.inf)), p.get("max", math.inf)),
        "LeakyRelu": lambda x: x if x >= 0 else p.get("alpha", 0.01) * x,
        "Elu": lambda x: x if x >= 0 else p.get("alpha", 1.0) * (_exp(x) - 1.0),
        "Selu": lambda x: (
            p.get("gamma", 1.0507009873554805) * (x if x > 0 else p.get("alpha", 1.6732632423543772) * (_exp(x) - 1.0))
        ),
        "Celu": lambda x: max(x, 0.0) + min(0.0, p.get("alpha", 1.0) * (_exp(x / p.get("alpha", 1.0)) - 1.0)),
        "Sigmoid": sigmoid,
        "Tanh": math.tanh,
        "HardSigmoid": lambda x: max(0.0, min(1.0, p.get("alpha", 0.2) * x + p.get("beta", 0.5))),
        "HardSwish": lambda x: x * max(0.0, min(1.0, x / 6.0 + 0.5)),
        "Softplus": lambda x: x + math.log1p(math.exp(-x)) if x > 0 else math.log1p(_exp(x)),
        "Softsign": lambda x: x / (1.0 + abs(x)),
        "Gelu": lambda x: _gelu(x, "tanh" in p),
        "Erf": math.erf,
        "Exp": _exp,
        "Log": _log,
        "Sqrt": lambda x: math.sqrt(x) if x >= 0 else math.nan,
        "Neg": lambda x: -x,
        "Abs": abs,
        "Reciprocal": lambda x: 1.0 / x if x else math.inf,
        "Floor": lambda x: float(math.floor(x)),
        "Ceil": lambda x: float(math.ceil(x)),
        "Round": lambda x: float(round(x)),
        "Sign": lambda x: float((x > 0) - (x < 0)),
        "Sin": math.sin,
        "Cos": math.cos,
        "Tan": math.tan,
        "Asin": lambda x: math.asin(x) if abs(x) <= 1 else math.nan,
        "Acos": lambda x: math.acos(x) if abs(x) <= 1 else math.nan,
        "Atan": math.atan,
        "Sinh": lambda x: math.sinh(x) if abs(x) < 710 else math.copysign(math.inf, x),
        "Cosh": lambda x: math.cosh(x) if abs(x) < 710 else math.inf,
        "Asinh": math.asinh,
        "Acosh": lambda x: math.acosh(x) if x >= 1 else math.nan,
        "Atanh": lambda x: math.atanh(x) if abs(x) < 1 else math.copysign(math.inf, x) if abs(x) == 1 else math.nan,
        "ThresholdedRelu": lambda x: x if x > p.get("alpha", 1.0) else 0.0,
        "Mish": lambda x: x * math.tanh(math.log1p(_exp(x)) if x < 30 else x),
        "Swish": lambda x: x * sigmoid(p.get("alpha", 1.0) * x),
    }
    return table[op.kind]
