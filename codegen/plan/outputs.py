"""What a caller sees: frames per push and at finish, latency, and the clip lengths at which its joins agree.

Sources: docs/streaming.md. All clock values and latencies in network input frames.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from codegen.ir.lengths import counts, ended_tensors, lengths_with_faults
from codegen.ir.periods import period, phases, warm_up
from codegen.ir.time import TimeGraph


@dataclass(frozen=True)
class OutBound:
    """A push of n >= 0 frames yields at most floor((n*P + c)/M) frames; so does finish where `finish` was asked for."""

    P: int
    M: int
    c: int

    def __call__(self, n: int) -> int:
        return (n * self.P + self.c) // self.M


@dataclass(frozen=True)
class Latency:
    """Frame j is handed out with input frame j*S + delay; delay over all phases of one period (input frames)."""

    best: Fraction
    worst: Fraction


@dataclass(frozen=True)
class LegalLengths:
    """Clip lengths T for which the offline model works: residues modulo `modulus`, except for some short T.

    `too_short` are T that have a legal residue but fail, `exceptions` T that are legal in spite of their residue. T = 0
    is legal and empty.
    """

    modulus: int
    residues: tuple[int, ...]
    too_short: tuple[int, ...]
    exceptions: tuple[int, ...]

    def allows(self, total: int) -> bool:
        """True if a clip of `total` frames is legal."""
        if total in self.exceptions:
            return True
        return total % self.modulus in self.residues and total not in self.too_short

    @property
    def every(self) -> bool:
        """True if each T is legal."""
        return self.modulus == 1 and bool(self.residues) and not self.too_short

    @property
    def never(self) -> bool:
        """True if no clip with a frame is legal: the offline model itself is broken."""
        return not self.residues and not any(self.exceptions)

    def __str__(self) -> str:
        if not self.residues:
            return f"only {', '.join(map(str, self.exceptions)) or 'none'}"
        if self.modulus == 1:
            text = "any"
        elif self.residues == (0,):
            text = f"multiples of {self.modulus}"
        else:
            text = f"T mod {self.modulus} in {{{', '.join(map(str, self.residues))}}}"
        if self.too_short:
            text += f", not {_ranges(self.too_short)}"
        return text + (f", also {_ranges(self.exceptions)}" if self.exceptions else "")


def _ranges(values: tuple[int, ...]) -> str:
    """`1..4, 7` for 1, 2, 3, 4, 7."""
    parts: list[list[int]] = []
    for value in values:
        if parts and value == parts[-1][-1] + 1:
            parts[-1].append(value)
        else:
            parts.append([value])
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}..{p[-1]}" for p in parts)


def max_out(graph: TimeGraph, output: str, n: int) -> int:
    """Most frames that one push of n input frames yields, exact: the larger of steady state and first push."""
    if n <= 0 or output in ended_tensors(graph):
        return 0
    span, _ = phases(graph)[output]
    steady = max(counts(graph, start + n)[output] - counts(graph, start)[output] for start in range(span))
    return max(steady, counts(graph, n)[output])


def finish_max(graph: TimeGraph, output: str) -> int:
    """Most frames that finish yields, over every legal clip length T; exact: from the warm-up on T has period M."""
    most = 0
    for total in range(warm_up(graph) + period(graph)):
        length, faults = lengths_with_faults(graph, total)
        if not faults:
            most = max(most, length[output] - (max(0, counts(graph, total)[output]) if total else 0))
    return most


def out_bound(graph: TimeGraph, output: str, finish: bool = True) -> OutBound:
    """The smallest c for which floor((n*P + c)/M) bounds every push of n >= 0 frames, and finish if asked for.

    With u(N) = M*A(N) - P*N, which has period M: a steady push needs c = max u - min u, the first one max u.
    """
    if output in ended_tensors(graph):
        return OutBound(0, 1, 1 if finish else 0)
    m, p = phases(graph)[output]
    excess = [m * counts(graph, n)[output] - p * n for n in range(m)]
    c = max(0, *excess, max(excess) - min(excess))
    if finish:
        c = max(c, m * finish_max(graph, output))
    common = math.gcd(p, m)
    return OutBound(p // common, m // common, c // common)


def latency(graph: TimeGraph, output: str) -> Latency | None:
    """Delay tau(j) - j*S over all phases of one period, None for a tensor that exists only at the end.

    Tight where the wait of receptive_field.Extent is only a bound (a stride below an upsampling may skip the worst
    phase). Negative: frame j is ready before input frame j*S.
    """
    if output in ended_tensors(graph):
        return None
    m, p = phases(graph)[output]
    made = [counts(graph, n)[output] for n in range(m + 1)]
    delays = [n - Fraction(j * m, p) for n in range(m) for j in range(made[n], made[n + 1])]
    return Latency(min(delays), max(delays))


def hop_wait(graph: TimeGraph, output: str, hop: int) -> int:
    """Most input frames that a finished frame waits for the end of its push, if all pushes have exactly `hop` frames.

    docs/streaming.md: with g = gcd(M, hop) the wait (-(tau + 1)) mod hop takes all values congruent to it modulo g.
    """
    if output in ended_tensors(graph):
        return 0
    m, _ = phases(graph)[output]
    g = math.gcd(m, hop)
    firing = [n for n in range(m) if counts(graph, n + 1)[output] > counts(graph, n)[output]]
    return max(hop - g + (-(n + 1)) % g for n in firing)


def is_legal(graph: TimeGraph, total: int) -> bool:
    """True if the offline model works for T = `total` frames and streaming cannot have handed out more than it has.

    The second part fails only where an output frame of nothing but padding is handed out before a tensor in between
    turns out to be empty; 0 frames are legal, nothing is handed out.
    """
    length, faults = lengths_with_faults(graph, total)
    if faults or total == 0:
        return not faults
    available = counts(graph, total)
    return all(available[name] <= length[name] for name in graph.outputs)


def next_legal(graph: TimeGraph, least: int) -> int:
    """The first legal length from `least` frames on, looked for in four periods; `least` where none is."""
    return next((n for n in range(least, least + 4 * period(graph) + 1) if is_legal(graph, n)), least)


def legal_lengths(graph: TimeGraph) -> LegalLengths:
    """The legal clip lengths T, exact: from the warm-up on legality has period M."""
    steady, span = warm_up(graph), period(graph)
    legal = [is_legal(graph, total) for total in range(steady + span)]
    cycle = [legal[steady + (r - steady) % span] for r in range(span)]
    modulus = next(
        d for d in range(1, span + 1) if span % d == 0 and all(cycle[r] == cycle[r % d] for r in range(span))
    )
    too_short = tuple(total for total in range(steady) if cycle[total % span] and not legal[total])
    exceptions = tuple(total for total in range(steady) if legal[total] and not cycle[total % span])
    return LegalLengths(modulus, tuple(r for r in range(modulus) if cycle[r]), too_short, exceptions)
