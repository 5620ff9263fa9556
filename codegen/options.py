"""What a user can choose; `codegen.toml` has the same keys."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """Build options.

    name: C prefix (default: from the file name). hop: most input frames processed at once. stream: the stream axis,
    `AXIS` or `INPUT:AXIS`, a number or a symbol. rate: input frames per second, for latencies in ms.
    """

    name: str | None = None
    hop: int = 1
    stream: str | None = None
    rate: float | None = None
