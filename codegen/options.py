"""What a user can choose; `codegen.toml` has the same keys."""

from __future__ import annotations

from dataclasses import dataclass

PLANS = ("auto", "stream", "hybrid", "whole")
PREFERENCES = ("balanced", "ram", "latency")


@dataclass(frozen=True)
class Options:
    """Build options.

    name: C prefix (default: from the file name). hop: most input frames processed at once. stream: the stream axis,
    `AXIS` or `INPUT:AXIS`, a number or a symbol, or `none`: the whole input is one frame. endless: a clip of fixed
    length becomes a sliding window. state: `INPUT=OUTPUT` pairs that are carried inside from step to step.
    state_output: outputs of such pairs that stay outputs (all do where no other is left). plan: `stream`, `whole` (one
    push is the whole input, layer by layer), `hybrid` (a clip streams up to the tensor that is best, the rest runs
    layer by layer), or `auto`: stream or hybrid; whole where nothing streams, or a clip cannot. plan_for: what decides
    between plans, `ram`, `latency` (the MACs of the largest push) or both, `balanced` (`codegen.plan.choose`). rate:
    input frames per second, for latencies in ms. trace: observe every
    value of every stage. cut_input, cut_output: tensors where the part to build starts and ends
    (`codegen.frontend.cut`). ram_budget, flash_budget, stack_budget: bytes that a build may need (`codegen.budgets`).
    fast_memory, cores: layers that need more bytes are cut into tiles that fit, and into at least so many tasks
    (`codegen.plan.tiling`). target: the processor that kernels and forms of rounding are chosen for
    (`codegen.plan.kernels.TARGETS`). shared_runtime: the kernels' files keep their own names, and their text is the
    same for every model, so that models in one program share them.
    """

    name: str | None = None
    hop: int = 1
    stream: str | None = None
    endless: bool = False
    state: tuple[str, ...] = ()
    state_output: tuple[str, ...] = ()
    plan: str = "auto"
    plan_for: str = "balanced"
    rate: float | None = None
    trace: bool = False
    cut_input: tuple[str, ...] = ()
    cut_output: tuple[str, ...] = ()
    ram_budget: int | None = None
    flash_budget: int | None = None
    stack_budget: int | None = None
    fast_memory: int | None = None
    cores: int = 1
    target: str = "portable"
    shared_runtime: bool = False
