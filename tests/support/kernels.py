"""numpy in, numpy out around the compiled runtime: one method per C function."""

from __future__ import annotations

from typing import Any

import numpy as np

from codegen.numerics.forms import RequantParams
from codegen.numerics.linear import LinearParams, MulParams
from codegen.numerics.pairs import AddParams
from codegen.numerics.softmax import LogSoftmaxParams, SoftmaxParams


class Kernels:
    """The shared object built from runtime_c and harness.c. Struct memory lives as long as the call."""

    def __init__(self, ffi: Any, library: Any) -> None:
        self.ffi, self.library = ffi, library
        self._kept: list[Any] = []

    def pointer(self, array: np.ndarray, ctype: str) -> Any:
        self._kept.append(array)
        return self.ffi.cast(f"{ctype} *", self.ffi.from_buffer(array))

    def exact(self, acc: np.ndarray, bits: np.ndarray) -> np.ndarray:
        acc, bits = np.ascontiguousarray(acc, np.int32), np.ascontiguousarray(bits, np.uint32)
        y = np.empty(acc.size, np.int32)
        self.library.many_exact(
            self.pointer(acc, "int32_t"), self.pointer(bits, "uint32_t"), acc.size, self.pointer(y, "int32_t")
        )
        return y

    def requant_struct(self, params: RequantParams) -> Any:
        struct = self.ffi.new("rt_requant_t *")
        ctypes = {"int32": "int32_t", "uint8": "uint8_t", "uint32": "uint32_t"}
        for name, table in params.tables().items():
            setattr(struct, name, self.pointer(table, ctypes[str(table.dtype)]))
        for name in ("window", "flip", "zero_point", "lo", "hi", "right_shift"):
            setattr(struct, name, getattr(params, name))
        struct.form = params.form_code
        return struct

    def requantize(self, acc: np.ndarray, struct: Any, channel: int) -> np.ndarray:
        acc = np.ascontiguousarray(acc, np.int32)
        y = np.empty(acc.size, np.int8)
        self.library.many_requantize(self.pointer(acc, "int32_t"), acc.size, struct, channel, self.pointer(y, "int8_t"))
        self._kept = self._kept[-64:]
        return y

    def add_mulhi(self, total: np.ndarray, a: np.ndarray, m: np.ndarray) -> np.ndarray:
        arrays = [np.ascontiguousarray(part, np.int32) for part in (total, a, m)]
        y = np.empty(arrays[0].size, np.int32)
        self.library.many_add_mulhi(
            *(self.pointer(part, "int32_t") for part in arrays), y.size, self.pointer(y, "int32_t")
        )
        return y

    def _fill_linear(self, struct: Any, params: LinearParams) -> None:
        for name in ("multiplier", "rounding", "parity", "flip", "lo", "hi", "left_shift", "right_shift"):
            setattr(struct, name, getattr(params, name))
        table = self.ffi.new("rt_exception_t[]", max(len(params.exceptions), 1))
        for i, (value, code) in enumerate(params.exceptions):
            table[i].input, table[i].code = value, code
        self._kept.append(table)
        struct.exceptions, struct.exception_count = table, len(params.exceptions)

    def linear(self, x: np.ndarray, params: LinearParams) -> np.ndarray:
        struct = self.ffi.new("rt_linear_t *")
        self._fill_linear(struct, params)
        x = np.ascontiguousarray(x, np.int32)
        y = np.empty(x.size, np.int8)
        self.library.many_linear(self.pointer(x, "int32_t"), x.size, struct, self.pointer(y, "int8_t"))
        return y

    def _pairs(self, function: Any, a: np.ndarray, b: np.ndarray, struct: Any) -> np.ndarray:
        a, b = (np.ascontiguousarray(part, np.int8) for part in np.broadcast_arrays(a, b))
        y = np.empty(a.shape, np.int8)
        function(self.pointer(a, "int8_t"), self.pointer(b, "int8_t"), a.size, struct, self.pointer(y, "int8_t"))
        return y

    def mul(self, a: np.ndarray, b: np.ndarray, params: MulParams) -> np.ndarray:
        struct = self.ffi.new("rt_mul_t *")
        struct.zero_a, struct.zero_b = params.zero_a, params.zero_b
        self._fill_linear(struct.linear, params.linear)
        return self._pairs(self.library.rt_mul_s8, a, b, struct)

    def add(self, a: np.ndarray, b: np.ndarray, params: AddParams) -> np.ndarray:
        struct = self.ffi.new("rt_add_t *")
        for name, value in params.split().items():
            setattr(struct, name, value)
        for name in ("flip", "lo", "hi", "wide"):
            setattr(struct, name, int(getattr(params, name)))
        table = self.ffi.new("rt_add_exception_t[]", max(len(params.exceptions), 1))
        for i, (pair, code) in enumerate(params.exceptions):
            table[i].pair, table[i].code = pair, code
        self._kept.append(table)
        struct.exceptions, struct.exception_count = table, len(params.exceptions)
        return self._pairs(self.library.rt_add_s8, a, b, struct)

    def _rows(self, function: Any, x: np.ndarray, struct: Any) -> np.ndarray:
        x = np.ascontiguousarray(x, np.int8)
        y = np.empty(x.shape, np.int8)
        function(self.pointer(x, "int8_t"), x.shape[0], x.shape[1], struct, self.pointer(y, "int8_t"))
        return y

    def softmax(self, x: np.ndarray, params: SoftmaxParams) -> np.ndarray:
        struct = self.ffi.new("rt_softmax_t *")
        struct.table = self.pointer(params.table.astype(np.uint32), "uint32_t")
        for name in ("scale_mantissa", "quotient_bits", "zero_point", "lo", "hi"):
            setattr(struct, name, getattr(params, name))
        return self._rows(self.library.rt_softmax_s8, x, struct)

    def log_softmax(self, x: np.ndarray, params: LogSoftmaxParams) -> np.ndarray:
        struct = self.ffi.new("rt_log_softmax_t *")
        struct.table = self.pointer(params.table.astype(np.uint32), "uint32_t")
        struct.difference = self.pointer(params.difference.astype(np.int32), "int32_t")
        struct.logs = self.pointer(params.logs.astype(np.int32), "int32_t")
        for name in ("table_bits", "shift", "zero_point", "lo", "hi"):
            setattr(struct, name, getattr(params, name))
        return self._rows(self.library.rt_log_softmax_s8, x, struct)

    def lut(self, x: np.ndarray, table: np.ndarray) -> np.ndarray:
        x, y = np.ascontiguousarray(x, np.int8), np.empty(x.shape, np.int8)
        self.library.rt_lut_s8(
            self.pointer(x, "int8_t"), x.size, self.pointer(table, "int8_t"), self.pointer(y, "int8_t")
        )
        return y
