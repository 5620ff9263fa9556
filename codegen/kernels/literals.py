"""Numbers and tables as C text."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from codegen.ops.base import Table

C_TYPES = {
    np.dtype(np.int8): "int8_t",
    np.dtype(np.uint8): "uint8_t",
    np.dtype(np.int16): "int16_t",
    np.dtype(np.uint16): "uint16_t",
    np.dtype(np.int32): "int32_t",
    np.dtype(np.uint32): "uint32_t",
}


def integer(value: int) -> str:
    """A C literal of type int (the most negative number has no literal of its own)."""
    return "(-2147483647 - 1)" if value == -(1 << 31) else str(value)


def float_literal(value: float) -> str:
    """The shortest decimal float32 literal that reads back as the same value."""
    text = np.format_float_scientific(np.float32(value), unique=True, trim="0")
    return f"{text}f"


def rows(values: npt.NDArray[np.generic], ctype: str, width: int = 116) -> str:
    """Array elements in lines of at most `width` characters."""
    suffix = "u" if ctype == "uint32_t" else ""
    lines, line = [], "   "
    for value in values.reshape(-1).tolist():
        text = f" {integer(value)}{suffix},"
        if len(line) + len(text) > width:
            lines.append(line)
            line = "   "
        line += text
    lines.append(line.rstrip(","))
    return "\n".join(lines)


def typed(values: npt.NDArray[np.generic], comment: str = "") -> Table:
    """A table whose C type is the array's own."""
    return Table(C_TYPES[values.dtype], values, comment)


def float_rows(values: npt.NDArray[np.generic]) -> str:
    """Float table elements, six a line; infinities and NaN as constant expressions."""
    texts = []
    for value in values.reshape(-1).astype(np.float32):
        if np.isnan(value):
            texts.append("(0.0f / 0.0f)")
        elif np.isinf(value):
            texts.append("(1.0f / 0.0f)" if value > 0 else "(-1.0f / 0.0f)")
        else:
            texts.append(float_literal(float(value)))
    return ",\n".join("    " + ", ".join(texts[i : i + 6]) for i in range(0, len(texts), 6))
