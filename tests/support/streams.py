"""Clips through a generated model: random lengths and chunkings, each clip twice, against the whole-clip reference.

What the offline model accepts is decided here by running the numpy reference node by node and comparing the lengths
that meet at a join, not by the planner's own formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from checks import Array, Generated, Script, assert_same, code_frames, inner, outer, split

from codegen.ir.graph import Graph
from codegen.ir.periods import warm_up
from codegen.ops.base import KernelOp
from codegen.verify.verification import random_feed


def run_reference(graph: Graph, inputs: dict[str, Array]) -> dict[str, Array] | None:
    """Codes of every tensor for a whole clip; None where the offline model fails: operands of unequal length."""
    values = {name: x.reshape(x.shape[0], *graph.tensors[name].frame_shape) for name, x in inputs.items()}
    for node in graph.nodes:
        assert isinstance(node.op, KernelOp)
        operands = [values[x] for x in node.inputs]
        if len({x.shape[0] for x in operands}) > 1:
            return None
        shape = graph.tensors[node.output].frame_shape
        if operands[0].shape[0] == 0:
            values[node.output] = np.zeros((0, *shape), np.int8)
            continue
        result = node.op.reference(operands)
        values[node.output] = result.reshape(result.shape[0], *shape)
    return values


def clip(g: Generated, total: int, seed: int) -> list[Array]:
    """Seeded frames of every input, as the C takes them."""
    if total:
        return code_frames(g, random_feed(g.graph, total, seed))
    return [np.zeros((0, p["frame_elements"]), p["code_dtype"]) for p in g.manifest["inputs"]]


@dataclass
class Trial:
    """One clip in one chunking, its expected output (None: not accepted) and whether the run before it was poisoned."""

    what: str
    pushes: list[int]
    want: list[Array] | None


@dataclass
class Session:
    """Trials of one model as commands for the driver, and the comparison of its answers."""

    g: Generated
    script: Script = field(init=False)
    trials: list[Trial] = field(default_factory=list)
    refused: int = 0
    values: int = 0

    def __post_init__(self) -> None:
        self.script = Script(self.g)

    def clip(self, total: int, seed: int, chunkings: Sequence[Sequence[int]], poison: Sequence[int | None]) -> None:
        """The same clip once for each chunking; `poison` fills all memory before that run's init (None: no init)."""
        frames = clip(self.g, total, seed)
        codes = run_reference(self.g.graph, inner(self.g, frames))
        want = None if codes is None else outer(self.g, codes)
        for sizes, value in zip(chunkings, poison, strict=True):
            if value is not None:
                self.script.poison(value)
            at = 0
            for n in sizes:
                self.script.push([f[at : at + n] for f in frames], n)
                at += n
            assert at == total
            self.script.finish()
            self.trials.append(Trial(f"T={total} seed={seed} pushes={list(sizes)}", list(sizes), want))

    def run(self, program: Path, *arguments: str) -> None:
        """Run the program and compare every frame; finish must fail exactly where the offline model does."""
        answers = iter(self.script.run(program, *arguments))
        for trial in self.trials:
            got = [next(answers) for _ in range(len(trial.pushes) + 1)]
            assert all(status == 0 for status, _ in got[:-1]), trial.what
            self._compare(trial, got)
        assert next(answers, None) is None

    def _compare(self, trial: Trial, got: list[tuple[int, list[Array]]]) -> None:
        status, want = got[-1][0], trial.want
        before = [sum(len(outs[i]) for _, outs in got[:-1]) for i in range(len(self.g.graph.outputs))]
        # Frames of nothing but padding may have gone out before a clip turns out to be too short for any frame.
        early = want is not None and any(n > len(w) for n, w in zip(before, want, strict=True))
        if want is None or early:
            assert status == -1, f"{trial.what}: the offline model fails, finish says {status}"
            self.refused += 1
            return
        assert status == 0, f"{trial.what}: finish says {status}, the offline model works"
        for i, port in enumerate(self.g.graph.outputs):
            frames = np.concatenate([outs[i] for _, outs in got])
            assert_same(frames, want[i], f"{trial.what}, output {port.name}")
            self.values += frames.size


def some_lengths(g: Generated, r: np.random.Generator) -> list[int]:
    """0, 1, shorter than the window, around the warm-up, not multiples of the stride."""
    full = warm_up(g.graph.time_graph())
    long = full + int(r.integers(10, 60))
    return [0, 1, int(r.integers(2, 8)), int(r.integers(1, max(2, full) + 1)), long, long + int(r.integers(1, 8))]


def random_session(g: Generated, seed: int, lengths: Sequence[int] | None = None) -> Session:
    """Every length twice: after all memory was poisoned, then after finish alone or after another poison."""
    r = np.random.default_rng(seed)
    session = Session(g)
    for total in lengths if lengths is not None else some_lengths(g, r):
        again = 0x5A if r.random() < 0.5 else None
        session.clip(total, seed + total, [split(total, r), split(total, r)], [0xA5, again])
    return session
