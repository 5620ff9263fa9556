"""Kernels that go through frames element by element: tables, pairs, selections; and softmax, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np

from codegen.kernels.base import Constants, ElementwiseKernel, Emission, Site
from codegen.kernels.literals import typed
from codegen.kernels.rounding import exceptions, linear, listed, pair_exceptions
from codegen.kernels.structs import Array, Ref, Struct
from codegen.numerics.linear import MulParams
from codegen.numerics.pairs import AddParams
from codegen.numerics.softmax import LogSoftmaxParams
from codegen.ops.base import Table
from codegen.ops.pair import IslandS8, PairS8, SelectS8
from codegen.ops.softmax import SoftmaxS8
from codegen.ops.table import LutChannelsS8, LutS8
from codegen.plan.kernels import Target


class Lut(ElementwiseKernel):
    name = "rt_lut_s8"

    def emit(self, op: LutS8, site: Site) -> Emission:
        return Emission("lut", (self.name,), tables={"lut": typed(op.table, "by code + 128")})


class LutChannels(ElementwiseKernel):
    name = "rt_lut_channels_s8"

    def emit(self, op: LutChannelsS8, site: Site) -> Emission:
        tables = {
            "of": typed(op.table_of, "table of each element"),
            "luts": typed(op.tables, "by table and code + 128"),
        }
        return Emission("lut_channels", (self.name,), numbers={"period": op.table_of.size}, tables=tables)


class Add(ElementwiseKernel):
    name = "rt_add_s8"

    def fits(self, op: PairS8, target: Target, tile: bool) -> str:
        return "" if isinstance(op.params, AddParams) else "a product"

    def emit(self, op: PairS8, site: Site) -> Emission:
        p = op.params
        assert isinstance(p, AddParams)
        split = p.split()
        members: dict[str, Any] = {
            f"{x}_{part}": split[f"{x}_{part}"] for part in ("high", "low") for x in ("a", "b", "constant")
        }
        members |= {"parity": p.parity, **listed(p.exceptions, "exceptions"), "lo": p.lo, "hi": p.hi}
        members |= {"shift": split["shift"], "flip": p.flip, "wide": int(p.wide)}
        constants: Constants = {**pair_exceptions(p.exceptions), "pair": Struct("rt_add_t", members)}
        numbers = {"second": site.streams[-1]}
        return Emission("pair", (self.name,), numbers=numbers, constants=constants)


class Mul(ElementwiseKernel):
    name = "rt_mul_s8"

    def fits(self, op: PairS8, target: Target, tile: bool) -> str:
        return "" if isinstance(op.params, MulParams) else "a sum"

    def emit(self, op: PairS8, site: Site) -> Emission:
        p = op.params
        assert isinstance(p, MulParams)
        members: dict[str, Any] = {"zero_a": p.zero_a, "zero_b": p.zero_b, "linear": linear(p.linear)}
        constants: Constants = {**exceptions(p.linear.exceptions), "pair": Struct("rt_mul_t", members)}
        numbers = {"second": site.streams[-1]}
        return Emission("pair", (self.name,), numbers=numbers, constants=constants)


class Softmax(ElementwiseKernel):
    """A row is read twice, and written behind its second reading."""

    def __init__(self, log: bool) -> None:
        self.log = log
        self.name = "rt_log_softmax_s8" if log else "rt_softmax_s8"

    def fits(self, op: SoftmaxS8, target: Target, tile: bool) -> str:
        return "" if isinstance(op.params, LogSoftmaxParams) == self.log else f"it is {op.kind}"

    def emit(self, op: SoftmaxS8, site: Site) -> Emission:
        p = op.params
        tables = {"exp": typed(p.table.astype(np.uint32), "round(2^b exp(-d * x scale)), d = largest code - code")}
        members: dict[str, Any] = {"table": Ref("exp")}
        if isinstance(p, LogSoftmaxParams):
            tables["difference"] = typed(p.difference.astype(np.int32), "d * x scale / y scale, in fixed point")
            tables["logs"] = typed(p.logs.astype(np.int32), "ln(1 + 2^-i) / y scale, in fixed point")
            members |= {"difference": Ref("difference"), "logs": Ref("logs"), "table_bits": p.table_bits}
            members |= {"shift": p.shift}
        else:
            members |= {"scale_mantissa": p.scale_mantissa, "quotient_bits": p.quotient_bits}
        struct = Struct(f"{self.name[:-3]}_t", members | {"zero_point": p.zero_point, "lo": p.lo, "hi": p.hi})
        numbers = {"size": op.size, "rows": site.frame // op.size}
        return Emission("softmax", ("rt_softmax_s8",), (), numbers, tables, {"softmax": struct})


class Island(ElementwiseKernel):
    name = "rt_island_s8"

    def emit(self, op: IslandS8, site: Site) -> Emission:
        tables: dict[str, Table] = {"of": typed(op.island_of, "functions of each element")}
        seen: dict[bytes, str] = {}
        lists: dict[str, Array] = {}
        islands = []
        for i, p in enumerate(op.params):
            sides = {}
            for side, values in (("a", p.table_a), ("b", p.table_b)):
                data = values.astype(np.int32)
                sides[side] = Ref(seen.setdefault(data.tobytes(), f"{side}{i}"))
                tables.setdefault(sides[side].key, typed(data, "by code + 128"))
            lists |= pair_exceptions(p.exceptions, f"exceptions{i}")
            numbers = {name: getattr(p, name) for name in ("rounding", "shift", "parity", "flip")}
            members = sides | numbers | dict(listed(p.exceptions, f"exceptions{i}")) | {"lo": p.lo, "hi": p.hi}
            islands.append(Struct("rt_island_t", members))
        constants = {**lists, "islands": Array("rt_island_t", tuple(islands))}
        product = int(op.params[0].product)
        numbers = {"period": op.island_of.size, "product": product, "second": site.streams[-1]}
        return Emission("island", (self.name,), (), numbers, tables, constants)


class Select(ElementwiseKernel):
    name = "rt_select_s8"

    def emit(self, op: SelectS8, site: Site) -> Emission:
        numbers = {"flip": 0 if op.kind == "Max" else -1, "second": site.streams[-1]}
        return Emission("select", ("rt_island_s8",), numbers=numbers)


KERNELS = {
    LutS8: (Lut(),),
    LutChannelsS8: (LutChannels(),),
    PairS8: (Add(), Mul()),
    SoftmaxS8: (Softmax(False), Softmax(True)),
    IslandS8: (Island(),),
    SelectS8: (Select(),),
}
