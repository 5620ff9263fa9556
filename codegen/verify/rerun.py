from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen.codes import INT8, shift_of
from codegen.ir.graph import Carried, Graph
from codegen.ir.lengths import lengths_with_faults
from codegen.plan.receptive_field import analyse
from codegen.reference import whole_clip

Array = npt.NDArray[Any]
Outputs = dict[str, Array]
Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]


def steps(
    run: Run, feed: Mapping[str, Array], states: Sequence[str], zeros: Mapping[str, Array], graph: Graph
) -> Outputs:
    """Run a model once per step (axis 0 of every input), its state outputs fed back into its state inputs.

    `graph` carries the state; `zeros` has arrays in the type and shape of the state inputs. The state is a real value:
    it starts at real 0, and codes of another scale are fed back rescaled.
    """
    pairs = [(text.partition("=")[2], c) for text, c in zip(states, graph.carried, strict=True)]
    state = {c.name: _initial(zeros[c.name], c) for _, c in pairs}
    results: list[Mapping[str, Array]] = []
    for j in range(len(next(iter(feed.values())))):
        step = {p.name: np.reshape(feed[p.name][j : j + 1], p.view.shape) for p in graph.inputs}
        out = run({**step, **state})
        state = {c.name: _fed_back(np.asarray(out[source]), c) for source, c in pairs}
        results.append({port.name: out[port.name] for port in graph.outputs})
    join = {p.name: np.concatenate if p.view.shape[:1] == (1,) else np.stack for p in graph.outputs}
    return {name: join[name]([r[name] for r in results]) for name in results[0]}


def _initial(zeros: Array, c: Carried) -> Array:
    if zeros.dtype == np.float32:
        return zeros
    return np.full(zeros.shape, c.initial + shift_of(zeros.dtype), zeros.dtype)


def _fed_back(value: Array, c: Carried) -> Array:
    if value.dtype == np.float32 or c.table is None:
        return value
    shift = shift_of(value.dtype)
    codes = c.table[value.astype(np.int64) - shift - INT8.low]
    return np.asarray(codes.astype(np.int64) + shift).astype(value.dtype)


def windows(clip: Graph, endless: Graph, feed: Mapping[str, Array], most: int = 64) -> tuple[Array, Array]:
    """(sliding, re-run) codes of the first output for up to `most` windows of a long input; none if no window fits.

    Windows start every S input frames. The last frame of a window's result stands beside the last one that the sliding
    model would give if the stream ended with that window (S = P/Q: Q output frames for every P input frames).
    """
    length = clip.clip_length or 1
    inputs = {p.tensor: whole_clip.quantize_input(np.asarray(feed[p.name]), p) for p in endless.inputs}
    source, port = clip.outputs[0].tensor, endless.outputs[0].tensor
    time = endless.time_graph()
    stride = analyse(time)[port].S or Fraction(1)
    sliding = whole_clip.run_codes(endless, inputs)[port]
    first = lengths_with_faults(time, length)[0][port] - 1
    again, taken = [], []
    total = min(len(x) for x in inputs.values())
    for k in range(min(most, max(0, total - length) // stride.numerator + 1) if total >= length else 0):
        start, at = k * stride.numerator, first + k * stride.denominator
        part = {name: x[start : start + length] for name, x in inputs.items()}
        result = whole_clip.run_codes(clip, part)[source]
        if len(result) and 0 <= at < len(sliding):
            again.append(result[-1])
            taken.append(sliding[at])
    return np.asarray(taken), np.asarray(again)
