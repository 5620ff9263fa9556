"""Random layers of one output frame with data, for the window kernels of the runtime themselves."""

from __future__ import annotations

import shutil
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import cffi
import numpy as np
from batches import LANES
from checks import require_tool, run_tool
from shapes import axis_window

from codegen.ir.geometry import Geometry, window_length
from codegen.ops.tile_shape import Shape
from codegen.plan.tiling import TilePlan, plan_tiles, smallest_budget
from codegen.resources import runtime_folder

HERE = Path(__file__).parent
GUARD = 64
DECLARATIONS = """
typedef struct { int32_t size, out, taps, stride, dilation, before; } rt_axis_t;
typedef struct { int32_t channels, group_in, group_out, block_channels, block_depth, block_width; } rt_tiling_t;
typedef struct { int32_t first, end; } rt_range_t;
typedef struct {
    int32_t rows, tasks;
    rt_axis_t depth, width;
    rt_tiling_t tiling;
    rt_range_t depth_counts, width_counts;
    int32_t in_channels, out_channels, zero_point, missing, backwards, tap_step;
} layer_t;
typedef struct {
    const int32_t *multiplier, *rounding;
    const uint8_t *left_shift;
    const int32_t *parity;
    const uint32_t *scale_bits;
    int32_t window, flip, zero_point;
    int8_t lo, hi;
    uint8_t right_shift, form;
} rt_requant_t;
void conv(const layer_t *, const int8_t *, const int8_t *, const int8_t *, const int32_t *, const rt_requant_t *,
          int8_t *, int, int8_t *);
void conv_acc(const layer_t *, const int8_t *, const int8_t *, const int16_t *, const int32_t *, const rt_requant_t *,
              int8_t *, int, int32_t *);
void maxpool(const layer_t *, const int8_t *, const int8_t *, int8_t *, int, int8_t *);
void avgpool(const layer_t *, const int8_t *, int8_t *, int, int8_t *);
void conv_rows(const layer_t *, const int8_t *const *, const int8_t *, const int8_t *, const int32_t *,
               const rt_requant_t *, int8_t *);
void maxpool_rows(const layer_t *, const int8_t *const *, const int8_t *, int8_t *);
void avgpool_rows(const layer_t *, const int8_t *const *, const int8_t *, int8_t *);
"""


@lru_cache(maxsize=2)
def kernels(lanes: bool) -> tuple[cffi.FFI, Any]:
    """The runtime's window kernels and window_layers.c, compiled once; `lanes`: on the paths of a Cortex-M4, in C."""
    target = Path(tempfile.mkdtemp(prefix="layers")) / "harness.so"
    flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{runtime_folder()}"]
    flags += LANES if lanes else ()
    run_tool(
        [require_tool("gcc"), *flags, HERE / "window_layers.c", *sorted(runtime_folder().glob("*.c")), "-o", target]
    )
    ffi = cffi.FFI()
    ffi.cdef(DECLARATIONS)
    library = ffi.dlopen(str(target))
    shutil.rmtree(target.parent)
    return ffi, library


class Layer:
    """A random layer of one output frame, for one of the kernels."""

    def __init__(self, kind: str, r: np.random.Generator) -> None:
        self.kind, self.r = kind, r
        self.windows = [self.window() for _ in range(2)]
        self.rows = int(r.integers(1, 4))
        groups = int(r.choice([1, 1, 2, 3, 5, 9]))
        per, out = (int(r.choice([1, 1, 2, 3, 4])), int(r.choice([1, 1, 2, 3, 5, 6]))) if "conv" in kind else (1, 1)
        self.groups, self.group_in, self.group_out = groups, per, out
        self.depthwise = bool(r.integers(2))
        self.channels = groups * per, groups * out
        sizes = (self.windows[0][0], self.rows, self.windows[1][0])
        time = axis_window(self.rows, self.rows)
        weight, y = (2, 4) if kind == "conv_acc" else (1, 1)
        taps = self.rows * self.windows[0][1].taps * self.windows[1][1].taps
        own = taps * per * weight + 4 if "conv" in kind else 0
        self.shape = Shape(
            1, groups * out, groups, per, sizes, (self.windows[0][1], time, self.windows[1][1]), own, 1, y
        )

    def window(self) -> tuple[int, Any]:
        r = self.r
        while True:
            size, taps, stride, dilation = (int(r.integers(1, n)) for n in (13, 4, 4, 3))
            extent = dilation * (taps - 1) + 1
            auto = str(r.choice(["NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
            pads = tuple(int(n) for n in r.integers(0, extent, 2))
            window = axis_window(size, taps, stride, dilation, auto, pads, bool(r.integers(2)))
            if window_length(size, window) > 0 and (window.left < extent and window.right < extent):
                return size, window

    @property
    def geometry(self) -> Geometry:
        """What the operators know of depth and width."""
        sizes = [size for size, _ in self.windows]
        depth, width = (window for _, window in self.windows)
        out = window_length(sizes[0], depth), window_length(sizes[1], width)
        return Geometry(axis_window(self.rows, self.rows), depth, width, (sizes[0], sizes[1]), out)

    def plan(self) -> TilePlan:
        """Tiles for a random budget and number of cores."""
        small = smallest_budget(self.shape)
        budget = small + int(self.r.integers(0, 4)) * int(self.r.integers(1, 200))
        return plan_tiles(self.shape, int(budget), int(self.r.choice([1, 1, 2, 3, 8])))

    def fill(self, layer: Any, plan: TilePlan) -> None:
        layer.rows, layer.tasks = self.rows, plan.tasks
        include = bool(self.r.integers(2))
        for name, (size, w) in zip(("depth", "width"), self.windows, strict=True):
            numbers = [size, window_length(size, w), w.taps, w.stride, w.dilation, w.left]
            setattr(layer, name, numbers)
            setattr(layer, f"{name}_counts", [-w.left, size + w.right] if include else [0, size])
        layer.tiling = [
            self.channels[1],
            self.group_in,
            self.group_out,
            *(plan.block.planes, plan.block.d, plan.block.w),
        ]
        layer.in_channels, layer.out_channels = self.channels
        # Any weights will do, so those of a depthwise layer need not be moved: they are read in their own order.
        layer.tap_step = self.channels[1] if self.group_in == self.group_out == 1 and self.depthwise else 0
        layer.zero_point = int(self.r.integers(-128, 128))
        layer.missing = int(self.r.integers(-1, self.rows))


class Case:
    """A layer with data, for its kernel: untiled, in tiles in place, and in tiles that are copied."""

    def __init__(self, ffi: cffi.FFI, library: Any, layer: Layer, plan: TilePlan) -> None:
        r, self.ffi, self.kind = layer.r, ffi, layer.kind
        self.library, self.call = library, getattr(library, layer.kind)
        self.struct = ffi.new("layer_t *")
        layer.fill(self.struct, plan)
        channels = layer.channels[1]
        frame = layer.windows[0][0] * layer.windows[1][0] * layer.channels[0]
        taps = layer.rows * layer.windows[0][1].taps * layer.windows[1][1].taps * layer.group_in
        wide = layer.kind == "conv_acc"
        self.outputs = layer.shape.outputs[0] * layer.shape.outputs[2] * channels
        self.y_type = np.int32 if wide else np.int8
        self.x = r.integers(-128, 128, (layer.rows, frame)).astype(np.int8)
        self.pad = np.full(frame, -128 if layer.kind == "maxpool" else self.struct.zero_point, np.int8)
        self.weights = r.integers(-127, 128, channels * taps).astype(np.int16 if wide else np.int8)
        self.bias = r.integers(-1000, 1000, channels).astype(np.int32)
        self.constants = {
            "multiplier": r.integers(1 << 24, 1 << 26, channels).astype(np.int32),
            "rounding": r.integers(-(1 << 8), 1 << 8, channels).astype(np.int32),
            "left_shift": r.integers(0, 3, channels).astype(np.uint8),
        }
        self.requantize = ffi.new("rt_requant_t *")
        for name, array in self.constants.items():
            setattr(self.requantize, name, self.pointer(array))
        self.requantize.lo, self.requantize.hi, self.requantize.right_shift, self.requantize.form = -128, 127, 2, 1

    def pointer(self, array: np.ndarray) -> Any:
        return self.ffi.cast(f"{array.dtype}_t *", self.ffi.from_buffer(array))

    def run(self, tiled: bool, fast: Any) -> np.ndarray:
        y = np.full(self.outputs + GUARD, 77, self.y_type)
        x, pad, last = self.pointer(self.x), self.pointer(self.pad), (fast, tiled, self.pointer(y))
        if "conv" in self.kind:
            self.call(self.struct, x, pad, self.pointer(self.weights), self.pointer(self.bias), self.requantize, *last)
        elif self.kind == "maxpool":
            self.call(self.struct, x, pad, *last)
        else:
            self.call(self.struct, x, *last)
        assert (y[self.outputs :] == 77).all(), "written behind the output"
        return y[: self.outputs]

    def run_rows(self, rows: list[np.ndarray], y: np.ndarray) -> None:
        """Untiled, with every row where it is and the output where it shall be."""
        pointers = self.ffi.new("const int8_t *[]", [self.pointer(row) for row in rows])
        x, pad, y_at = pointers, self.pointer(self.pad), self.pointer(y)
        if self.kind == "conv":
            weights, bias = self.pointer(self.weights), self.pointer(self.bias)
            self.library.conv_rows(self.struct, x, pad, weights, bias, self.requantize, y_at)
        else:
            getattr(self.library, f"{self.kind}_rows")(self.struct, x, pad, y_at)

    def run_copied(self, size: int) -> np.ndarray:
        """In tiles in a block of `size` bytes, behind and before which nothing may be written."""
        memory = np.full(4 * GUARD + size, 99, np.int8)
        start = GUARD + -(memory.ctypes.data + GUARD) % 4
        y = self.run(True, self.pointer(memory) + start)
        assert (np.delete(memory, slice(start, start + size)) == 99).all(), f"outside of {size} B of fast memory"
        return y
