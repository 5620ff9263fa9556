"""Which kernel runs a node is known before memory is laid out: what it does not promise, the plan does not use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from checks import PREFIX, Generated, Run, Workshop, assert_same, write_generated
from models import Net, image_clip, shrinking_clip

from codegen import importing, pipeline
from codegen.errors import CodegenError
from codegen.kernels import KERNELS, window
from codegen.ops.conv import ConvS8
from codegen.ops.pool import MaxPoolS8
from codegen.options import Options
from codegen.plan import choose
from codegen.plan.kernels import PORTABLE, TARGETS, Kernel, Table
from codegen.plan.kernels import choose as choose_kernels
from codegen.reference import whole_clip
from codegen.verify import random_feed

SWAPPED = """#include "m_rt_conv_s8.h"
/* Output channels outside, positions inside: every position is written many times before the frame is read. */
void m_rt_conv_s8(const int8_t *const *rows, const m_rt_conv_t *c, int8_t *y)
{
    const int32_t taps = c->rows * c->depth.taps * c->width.taps;
    const int8_t *weights = c->weights;
    for (int32_t o = 0; o < c->out_channels; ++o)
        for (int32_t d = 0; d < c->depth.out; ++d)
            for (int32_t x = 0; x < c->width.out; ++x) {
                uint32_t acc = (uint32_t)c->bias[o];
                for (int32_t tap = 0; tap < taps; ++tap) {
                    const int32_t t = tap / (c->depth.taps * c->width.taps);
                    const int32_t i = tap / c->width.taps % c->depth.taps, j = tap % c->width.taps;
                    const int32_t depth = d * c->depth.stride - c->depth.before + i * c->depth.dilation;
                    const int32_t width = x * c->width.stride - c->width.before + j * c->width.dilation;
                    const int inside = depth >= 0 && depth < c->depth.size && width >= 0 && width < c->width.size;
                    for (int32_t k = 0; k < c->group_in; ++k) {
                        const int32_t channel = o / c->group_out * c->group_in + k;
                        const int32_t at = (depth * c->width.size + width) * c->in_channels + channel;
                        const int32_t v = inside ? rows[t][at] : c->zero_point;
                        acc += (uint32_t)(v * (c->tap_step ? weights[tap * c->tap_step + o]
                                                           : weights[(o * taps + tap) * c->group_in + k]));
                    }
                }
                y[d * c->y_depth + x * c->y_width + o] = m_rt_requantize_s8((int32_t)acc, &c->requantize, o);
            }
}
"""


class Swapped(window.Conv):
    """A kernel with loops of its own that says nothing of what they leave behind."""

    lead = Kernel.lead
    lead_back = Kernel.lead_back


def image(seed: int, channels: Sequence[int]) -> onnx.ModelProto:
    net = Net(seed=seed)
    x = net.input([1, 3, 16, 16])
    for i, count in enumerate(channels):
        stride = 2 if i % 2 else 1
        x = net.conv(x, count, [3, 3], pads=[1, 1, 1, 1], strides=[stride, stride])
    net.output(net.gemm(net.code_op("Flatten", net.real_op("GlobalAveragePool", [x]), axis=1), 3))
    return net.model()


MODELS = {
    "shrinking": shrinking_clip,
    "clip": image_clip,
    "image": lambda: image(1, (4, 8, 8, 16)),
    "wide": lambda: image(2, (16, 8, 8, 4)),
}
PLANS = ("auto", "stream", "whole")


def built(shop: Workshop, path: Path, table: Table, plan: str) -> Generated:
    options = Options(name=PREFIX, plan=plan)
    source = importing.read(path, options)
    chosen = choose.plan(source.graph, lambda: source.whole, options, table)
    shop.count += 1
    folder = shop.root / f"{shop.count}_out"
    made = write_generated(folder, path, pipeline.compile_chosen(path, source.model.digest, chosen, options))
    (folder / "src" / f"{PREFIX}_rt_conv_s8.c").write_text(SWAPPED)
    return made


def differing(shop: Workshop, g: Generated) -> int:
    feed = random_feed(g.graph)
    want, got = whole_clip.run(g.graph, feed), shop.host(g).run(feed, [1])
    return sum(int((got[name] != values).sum()) for name, values in want.items())


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", MODELS)
def test_a_kernel_that_declares_no_lead_builds_right_code(shop: Workshop, name: str, plan: str) -> None:
    table = {**KERNELS, ConvS8: (Swapped(False, False),)}
    assert differing(shop, built(shop, shop.save(MODELS[name]()), table, plan)) == 0


def test_a_kernel_that_lies_builds_wrong_code(shop: Workshop) -> None:
    """Or the test above would show nothing: the same loops with the portable kernel's promises."""
    paths = [shop.save(make()) for make in MODELS.values()]
    assert any(differing(shop, built(shop, path, KERNELS, plan)) for path in paths for plan in PLANS)


class Refuses(window.MaxPool):
    name = "rt_special"

    def fits(self, op: object, target: object, tile: bool) -> str:
        return "it wants vectors"


class Cheap(window.MaxPool):
    name = "rt_cheap"

    def cost(self, op: object, target: object) -> float:
        return -1.0


def test_the_choice_says_why(shop: Workshop) -> None:
    graph = importing.read(shop.save(pooled()), Options()).graph
    (pool,) = [node.name for node in graph.nodes if isinstance(node.op, MaxPoolS8)]

    def chosen(*kernels: Kernel, tiled: Sequence[str] = ()) -> tuple[str, str]:
        choice = choose_kernels(graph, PORTABLE, tiled, {**KERNELS, MaxPoolS8: kernels})[pool]
        return choice.kernel.name, choice.reason

    portable = window.MaxPool()
    assert chosen(Refuses(), portable) == ("rt_maxpool_s8", "rt_special: it wants vectors")
    assert chosen(portable, Cheap())[0] == "rt_cheap" and chosen(portable, portable)[0] == "rt_maxpool_s8"
    assert "in tiles" in chosen(portable, tiled=[pool])[1]
    with pytest.raises(CodegenError, match=r"no kernel of portable fits .rt_special: it wants vectors"):
        chosen(Refuses())


def pooled() -> onnx.ModelProto:
    net = Net(seed=3)
    x = net.conv(net.input([1, 3, "T"]), 4, [3])
    net.output(net.real_op("MaxPool", [x], same=True, kernel_shape=[2]))
    return net.model()


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_gives_the_same_codes(shop: Workshop, target: str) -> None:
    g = shop.build(MODELS["image"](), target=target)
    feed = random_feed(g.graph)
    assert_same(
        shop.host(g).run(feed)[g.graph.outputs[0].name], whole_clip.run(g.graph, feed)[g.graph.outputs[0].name], target
    )


def test_analyze_names_kernel_and_reason(shop: Workshop, run: Run) -> None:
    path = shop.save(pooled())
    code, out, _ = run("analyze", path, "--target", "cortex-m4")
    assert code == 0 and "rt_conv_s8" in out and "rt_maxpool_s8" in out
    assert run("analyze", path, "--target", "z80")[0] == 2


def test_constants_are_checked_against_the_header() -> None:
    """A member that the struct does not have, or in another order, is found when the constant is made."""
    from codegen.kernels.structs import Struct

    Struct("rt_block_t", {"outer": 1, "n": 2, "inner": 3})
    for members in ({"inner": 1, "outer": 1}, {"outer": 1, "m": 2}):
        with pytest.raises(AssertionError, match="rt_block_t has outer, n, inner"):
            Struct("rt_block_t", members)


def test_weights_of_two_kinds_take_two_kernels(shop: Workshop) -> None:
    graph = importing.read(shop.save(MODELS["image"]()), Options()).graph
    wide = {
        node.name: replace(node.op, weights=node.op.weights.astype(np.int16))
        for node in graph.nodes
        if isinstance(node.op, ConvS8)
    }
    graph = graph.with_nodes([replace(n, op=wide.get(n.name, n.op)) for n in graph.nodes])
    names = {c.kernel.name for c in choose_kernels(graph, PORTABLE, (), KERNELS).values()}
    assert "rt_conv_s8_w16" in names and "rt_conv_s8" not in names
