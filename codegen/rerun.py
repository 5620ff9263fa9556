"""What the original model gives where the stream is more than the file: step by step, window by window."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen.ir.graph import Carried, Graph
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
        out = run({**{name: x[j : j + 1] for name, x in feed.items()}, **state})
        state = {c.name: _fed_back(np.asarray(out[source]), c) for source, c in pairs}
        results.append({port.name: out[port.name] for port in graph.outputs})
    return {name: np.concatenate([r[name] for r in results]) for name in results[0]}


def _initial(zeros: Array, c: Carried) -> Array:
    if zeros.dtype == np.float32:
        return zeros
    return np.full(zeros.shape, c.initial + (128 if zeros.dtype == np.uint8 else 0), zeros.dtype)


def _fed_back(value: Array, c: Carried) -> Array:
    if value.dtype == np.float32 or c.table is None:
        return value
    shift = 0 if value.dtype == np.uint8 else 128
    codes = c.table[value.astype(np.int64) + shift]
    return np.asarray(codes.astype(np.int64) + (128 - shift)).astype(value.dtype)


def windows(clip: Graph, endless: Graph, feed: Mapping[str, Array], most: int = 64) -> tuple[Array, Array]:
    """(sliding, re-run) codes of the first output for up to `most` windows of a long input.

    The k-th full window starts at frame k * S; its result is the sliding stream's frame at which that window ends.
    """
    length = clip.clip_length or 1
    inputs = {p.tensor: whole_clip.quantize_input(np.asarray(feed[p.name]), p) for p in endless.inputs}
    port = endless.outputs[0]
    sliding = whole_clip.run_codes(endless, inputs)[port.tensor]
    sliding = sliding.reshape(sliding.shape[0], -1)
    total = min(len(x) for x in inputs.values())
    per_window = _frames_of(clip)
    stride = max(1, round((total - length + 1) / max(1, sliding.shape[0] - per_window + 1)))
    rerun, taken = [], []
    for k in range(min(most, (total - length) // stride + 1)):
        part = {name: x[k * stride : k * stride + length] for name, x in inputs.items()}
        result = whole_clip.run_codes(clip, part)[clip.outputs[0].tensor].reshape(-1, sliding.shape[1])
        at = k + per_window - 1
        if len(result) and at < len(sliding):
            rerun.append(result[-1])
            taken.append(sliding[at])
    return np.asarray(taken), np.asarray(rerun)


def _frames_of(clip: Graph) -> int:
    """Output frames of one clip."""
    return max(1, clip.tensors[clip.outputs[0].tensor].length)
