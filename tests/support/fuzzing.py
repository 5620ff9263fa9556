"""Mutated models: each is built into C that compiles (and equals the reference), or refused with a message.

    python tests/support/fuzzing.py --seed 1 --count 200 [--seconds 60] [--keep DIR]

Every case is built in a process of its own with 2 GB of address space and 20 seconds of processor time. Prints one
JSON line per failure and one with totals.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from models import DIVERSE, Net
from onnx import AttributeProto, TensorProto, helper, numpy_helper

MEMORY = 2 << 30
CPU_SECONDS = 20
WALL_SECONDS = 240
VERIFIED_SHARE = 4
VERIFIED_ELEMENTS = 1 << 20
STRICT = ["gcc", "-std=c99", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]
INTEGERS = (0, 1, -1, 2, 3, 7, 63, 255, 4096, 65536, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63))
FLOATS = (0.0, -0.0, -1.0, 1.0, 1e-45, 1e-30, 3e38, float("inf"), float("nan"))
NAMES = ("", "*/ int evil; /*", "a\nb", "int", "x" * 3000, "\u00e9\u202e", "0", "state", " ", "%s%n", "..", "\\")
OPS = (
    "Relu Clip Conv Gemm MatMul Add Sub Mul Div Max PRelu Transpose Reshape Squeeze Unsqueeze Flatten Pad "
    "Slice Concat Split Gather Expand Resize MaxPool AveragePool GlobalAveragePool ReduceMean ReduceSum "
    "ReduceMax Softmax LogSoftmax Sigmoid Tanh Identity QuantizeLinear DequantizeLinear QLinearConv "
    "QLinearMatMul ConvTranspose BatchNormalization GRU CumSum If Loop Constant ConstantOfShape Shape Cast "
    "Einsum Tile Range Where Nonsense LayerNormalization"
).split()
Rng = np.random.Generator
Mutation = Callable[[onnx.ModelProto, Rng], None]


def more_models() -> dict[str, Callable[[], onnx.ModelProto]]:
    """Kinds of nodes that the shared models lack."""

    def averaged() -> onnx.ModelProto:
        net = Net("int8", seed=1)
        y = net.conv(net.input([1, 3, "T"]), 4, [3], pads=[1, 1])
        net.output(net.real_op("AveragePool", [y], kernel_shape=[2], strides=[2]))
        return net.model()

    def operators() -> onnx.ModelProto:
        net = Net("uint8", form="qop", seed=2)
        x = net.input([1, 4, "T"])
        y = net.conv(x, 4, [3], pads=[2, 0])
        net.output(net.add(net.conv(x, 4, [1]), y))
        return net.model()

    def moved() -> onnx.ModelProto:
        net = Net("int8", seed=3)
        x = net.input([1, 4, "T"])
        y = net.real_op("Pad", [x], consts=[np.asarray([0, 0, 2, 0, 0, 0]), np.float32(0)])
        y = net.conv(y, 4, [3])
        y = net.real_op("Concat", [y, x], axis=1)
        y = net.code_op("Transpose", y, perm=[0, 2, 1])
        y = net.matmul(y, 5, add="float")
        y = net.code_op("Slice", y, [np.asarray([1]), np.asarray([4]), np.asarray([2])])
        net.output(net.real_op("Sigmoid", [y]), "float")
        return net.model()

    def head() -> onnx.ModelProto:
        net = Net("int8", seed=4)
        y = net.conv(net.input([1, 2, 12, 6], border="float"), 4, [3, 3], pads=[1, 1, 1, 1])
        y = net.real_op("GlobalAveragePool", [y])
        y = net.code_op("Reshape", y, [np.asarray([1, 4])])
        net.output(net.real_op("Softmax", [net.gemm(y, 3)], axis=1, scale=(1 / 256, -128)))
        return net.model()

    return {"averaged": averaged, "operators": operators, "moved": moved, "head": head}


def bases() -> list[bytes]:
    """Valid models as files."""
    return [make().SerializeToString() for make in (DIVERSE | more_models()).values()]


def pick(rng: Rng, items: Any) -> Any:
    return items[int(rng.integers(len(items)))]


def integer(rng: Rng) -> int:
    return int(pick(rng, INTEGERS)) if rng.random() < 0.6 else int(rng.integers(-5, 70))


def attribute(m: onnx.ModelProto, rng: Rng) -> None:
    """Change, remove or add an attribute."""
    node = pick(rng, m.graph.node)
    if not node.attribute or rng.random() < 0.2:
        name = pick(
            rng, ("pads", "axis", "strides", "group", "kernel_shape", "perm", "evil", "axes", "auto_pad", "mode")
        )
        value: Any = pick(rng, (integer(rng), [integer(rng) for _ in range(int(rng.integers(5)))], "SAME_UPPER", 1.5))
        with contextlib.suppress(ValueError, TypeError):
            node.attribute.append(helper.make_attribute(name, value))
        return
    at = int(rng.integers(len(node.attribute)))
    attr = node.attribute[at]
    kind = rng.random()
    if kind < 0.15:
        del node.attribute[at]
    elif kind < 0.25:
        attr.type = int(
            pick(rng, (AttributeProto.INT, AttributeProto.INTS, AttributeProto.FLOAT, AttributeProto.STRING))
        )
    elif attr.type == AttributeProto.INT:
        attr.i = integer(rng)
    elif attr.type == AttributeProto.INTS and attr.ints and kind < 0.8:
        attr.ints[int(rng.integers(len(attr.ints)))] = integer(rng)
    elif attr.type == AttributeProto.INTS:
        del attr.ints[int(rng.integers(len(attr.ints) + 1)) :]
    elif attr.type == AttributeProto.FLOAT:
        attr.f = pick(rng, FLOATS)
    elif attr.type == AttributeProto.STRING:
        attr.s = pick(rng, (b"", b"SAME_UPPER", b"VALID", b"reflect", b"linear", b"\xff\xfe"))


def wiring(m: onnx.ModelProto, rng: Rng) -> None:
    """Change what a node reads or writes."""
    node = pick(rng, m.graph.node)
    names = [t.name for t in m.graph.initializer] + [o for n in m.graph.node for o in n.output]
    names += [v.name for v in m.graph.input] + ["", "nowhere"]
    what = rng.random()
    if what < 0.45 and node.input:
        node.input[int(rng.integers(len(node.input)))] = pick(rng, names)
    elif what < 0.6 and len(node.input) > 1:
        i, j = (int(v) for v in rng.integers(len(node.input), size=2))
        node.input[i], node.input[j] = node.input[j], node.input[i]
    elif what < 0.7 and node.input:
        del node.input[int(rng.integers(len(node.input)))]
    elif what < 0.8:
        node.input.append(pick(rng, names))
    elif what < 0.9 and node.output:
        node.output[0] = pick(rng, names)
    else:
        node.output.append(pick(rng, names))


def nodes(m: onnx.ModelProto, rng: Rng) -> None:
    """Remove, repeat, reorder, retype."""
    what, at = rng.random(), int(rng.integers(len(m.graph.node)))
    if what < 0.2:
        del m.graph.node[at]
    elif what < 0.3:
        m.graph.node.append(m.graph.node[at])
    elif what < 0.4:
        order = [m.graph.node[i] for i in rng.permutation(len(m.graph.node))]
        copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in order]
        del m.graph.node[:]
        m.graph.node.extend(copies)
    elif what < 0.85:
        m.graph.node[at].op_type = pick(rng, OPS)
    else:
        m.graph.node[at].domain = pick(rng, ("", "com.microsoft", "org.evil", "ai.onnx", "\n"))


def inserted(m: onnx.ModelProto, rng: Rng) -> None:
    """Put a node with constant operands behind a tensor: movement with hostile numbers, functions, subgraphs."""
    node = pick(rng, m.graph.node)
    if not node.input:
        return
    at = int(rng.integers(len(node.input)))
    count = int(rng.integers(1, 9))
    values = np.asarray([integer(rng) for _ in range(count)], np.int64)
    m.graph.initializer.append(numpy_helper.from_array(values, f"evil{len(m.graph.initializer)}"))
    constant = m.graph.initializer[-1].name
    out = f"made{len(m.graph.node)}"
    kind = pick(
        rng, ("Pad", "Reshape", "Expand", "Tile", "ConstantOfShape", "Slice", "Gather", "Squeeze", "Resize", "If")
    )
    inputs = [node.input[at], *([""] * 2 if kind == "Resize" else []), constant]
    inputs += [constant] if kind == "Slice" else []
    made = helper.make_node(kind, [constant] if kind == "ConstantOfShape" else inputs, [out])
    if kind == "If":
        made.attribute.append(helper.make_attribute("then_branch", m.graph))
    node.input[at] = out
    m.graph.node.append(made)


def constant(m: onnx.ModelProto, rng: Rng) -> None:
    """Values, type, dimensions or data of an initializer."""
    tensor = pick(rng, m.graph.initializer)
    what = rng.random()
    array = numpy_helper.to_array(tensor).copy() if tensor.data_type in (1, 2, 3, 6, 7) else np.zeros(1, np.float32)
    if what < 0.5 and array.size:
        at = int(rng.integers(array.size))
        flat = array.reshape(-1)
        with np.errstate(all="ignore"):
            flat[at] = np.asarray(pick(rng, FLOATS)).astype(array.dtype) if array.dtype.kind == "f" else 0
            if array.dtype.kind != "f":
                info = np.iinfo(array.dtype)
                flat[at] = pick(rng, (info.min, info.max, 0, 1))
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    elif what < 0.65:
        dims = list(tensor.dims) or [1]
        dims[int(rng.integers(len(dims)))] = integer(rng)
        del tensor.dims[:]
        tensor.dims.extend(dims)
    elif what < 0.75:
        tensor.data_type = int(rng.integers(0, 24))
    elif what < 0.85:
        tensor.raw_data = tensor.raw_data[: int(rng.integers(len(tensor.raw_data) + 1))]
    elif what < 0.92:
        shape = pick(rng, ((0,), (1,), (1, 1), (array.size,), (0, 3)))
        tensor.CopyFrom(numpy_helper.from_array(np.resize(array, shape), tensor.name))
    else:
        tensor.data_location = TensorProto.EXTERNAL
        place = pick(rng, ("../../etc/passwd", "/etc/passwd", "missing.bin", "", "model.onnx", "\x00", "."))
        tensor.external_data.append(onnx.StringStringEntryProto(key="location", value=place))
        tensor.external_data.append(onnx.StringStringEntryProto(key="offset", value=str(integer(rng))))


def border(m: onnx.ModelProto, rng: Rng) -> None:
    """Inputs and outputs of the graph."""
    what = rng.random()
    value = pick(rng, [*m.graph.input, *m.graph.output])
    shape = value.type.tensor_type.shape
    if what < 0.5 and shape.dim:
        dim = pick(rng, shape.dim)
        if rng.random() < 0.7:
            dim.dim_value = integer(rng)
        else:
            dim.dim_param = pick(rng, (*NAMES, "T", "time"))
    elif what < 0.6:
        value.type.tensor_type.ClearField("shape")
    elif what < 0.7:
        value.type.tensor_type.elem_type = int(rng.integers(0, 24))
    elif what < 0.8:
        shape.dim.add().dim_value = integer(rng)
    elif what < 0.9:
        names = [o for n in m.graph.node for o in n.output] + [t.name for t in m.graph.initializer]
        m.graph.output.append(helper.make_tensor_value_info(pick(rng, names), int(rng.integers(1, 8)), None))
    else:
        del m.graph.output[:]


def naming(m: onnx.ModelProto, rng: Rng) -> None:
    """Rename a tensor everywhere, or a node, or the graph."""
    new = pick(rng, NAMES)
    old = pick(rng, [o for n in m.graph.node for o in n.output] + [v.name for v in m.graph.input])
    for node in m.graph.node:
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                if name == old:
                    names[i] = new
        if rng.random() < 0.2:
            node.name = pick(rng, NAMES)
    for value in (*m.graph.input, *m.graph.output):
        if value.name == old:
            value.name = new
    m.graph.name = pick(rng, NAMES)


def version(m: onnx.ModelProto, rng: Rng) -> None:
    """Opsets and the IR version."""
    what = rng.random()
    if what < 0.6 and m.opset_import:
        m.opset_import[0].version = int(rng.integers(5, 28))
    elif what < 0.8:
        m.ir_version = integer(rng)
    else:
        del m.opset_import[:]


MUTATIONS: tuple[Mutation, ...] = (
    attribute, attribute, wiring, nodes, inserted, constant, constant, border, naming, version,
)  # fmt: skip


def mutate_structure(data: bytes, rng: Rng) -> bytes:
    """One to three changes of a valid model; changes that protobuf itself refuses are left out."""
    model = onnx.ModelProto.FromString(data)
    for _ in range(1 + int(rng.random() < 0.35)):
        if not model.graph.node:
            break
        with contextlib.suppress(ValueError, TypeError, IndexError, OverflowError, KeyError):
            pick(rng, MUTATIONS)(model, rng)
    return model.SerializeToString()


def mutate_bytes(data: bytes, rng: Rng) -> bytes:
    """Flipped, overwritten, removed, repeated bytes, or an end that is missing."""
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        at, size = int(rng.integers(len(out))), int(rng.integers(1, 9))
        what = rng.random()
        if what < 0.4:
            out[at] ^= 1 << int(rng.integers(8))
        elif what < 0.6:
            out[at : at + size] = rng.bytes(size)
        elif what < 0.75:
            del out[at : at + size]
        elif what < 0.9:
            out[at:at] = out[at : at + size]
        else:
            del out[max(at, 1) :]
    return bytes(out)


def case(originals: list[bytes], seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    data = pick(rng, originals)
    return mutate_bytes(data, rng) if rng.random() < 0.3 else mutate_structure(data, rng)


def attempt(path: Path, verified: bool) -> dict[str, Any]:
    """Build (in this process, with its limits); on success compile strictly, and compare with the reference."""
    from codegen.cli import main

    out = path.parent / "out"
    code = main(["--debug", "build", str(path), "-o", str(out), "--name", "m"])
    resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    if code != 0:
        return {"code": code}
    sources = sorted((out / "src").glob("*.c"))
    done = subprocess.run([*STRICT, *map(str, sources)], capture_output=True, text=True, check=False)
    if done.returncode:
        return {"code": code, "fault": "the C does not compile: " + done.stderr[:600]}
    return {"code": code, **(compared(path, out) if verified else {})}


def compared(path: Path, out: Path) -> dict[str, Any]:
    from codegen import host
    from codegen.pipeline import load_int8
    from codegen.reference import whole_clip
    from codegen.verify.verification import random_feed

    graph = load_int8(path)
    if sum(t.length * t.frame_elements for t in graph.tensors.values()) > VERIFIED_ELEMENTS and graph.clip_length:
        return {}
    feed = random_feed(graph)
    want = whole_clip.run(graph, feed)
    model = host.load(out, "gcc", ("-w", "-O1"))
    for chunks in (None, [1], [3, 1, 2]):
        got = model.run(feed, chunks)
        for name, value in want.items():
            same = got[name].shape == value.shape and np.array_equal(
                got[name], value, equal_nan=value.dtype.kind == "f"
            )
            if not same:
                return {"fault": f"C differs from the reference: {name}, pushes {chunks}"}
    return {"verified": True}


def run_case(data: bytes, folder: Path, verified: bool) -> dict[str, Any]:
    """The outcome of one case in a child process: exit code, and `fault` where it is none of those that may be."""
    folder.mkdir(parents=True, exist_ok=True)
    path, log, result = folder / "model.onnx", folder / "log.txt", folder / "result.json"
    path.write_bytes(data)
    result.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        _child(path, log, result, verified)
    _, status = os.waitpid(child, 0)
    text = log.read_text(errors="replace")
    if not result.exists():
        died = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"status {status}"
        return {"fault": f"killed by {died}", "log": text[-600:]}
    outcome: dict[str, Any] = json.loads(result.read_text())
    if "fault" not in outcome and outcome.get("code") not in (0, 2, 3):
        outcome["fault"] = f"exit code {outcome.get('code')}"
    if "fault" not in outcome and outcome["code"] and not text.startswith("codegen: "):
        outcome["fault"] = "no message"
    if "fault" not in outcome and "Traceback" in text:
        outcome["fault"] = "a traceback"
    return outcome | ({"log": text[-600:]} if "fault" in outcome else {})


def _child(path: Path, log: Path, result: Path, verified: bool) -> None:
    with log.open("w") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
        sys.stdout, sys.stderr = stream, stream
        try:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            used = int(resource.getrusage(resource.RUSAGE_SELF).ru_utime) + 1
            resource.setrlimit(resource.RLIMIT_CPU, (used + CPU_SECONDS, resource.RLIM_INFINITY))
            signal.alarm(WALL_SECONDS)
            outcome = attempt(path, verified)
        except BaseException:
            outcome = {"code": None, "fault": "raised", "trace": traceback.format_exc()[-900:]}
        stream.flush()
        result.write_text(json.dumps(outcome))
    os._exit(0)


def run(first: int, count: int, seconds: float, keep: Path | None) -> dict[str, Any]:
    """Cases of the seeds first .. first + count - 1; failing models stay in `keep`."""
    import codegen.cli  # noqa: F401  imported before the first fork

    originals = bases()
    totals: dict[str, Any] = {"cases": 0, "built": 0, "verified": 0, "refused": 0, "faults": []}
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as temporary:
        for seed in range(first, first + count):
            if time.monotonic() > end:
                break
            data = case(originals, seed)
            outcome = run_case(data, Path(temporary) / str(seed % 8), seed % VERIFIED_SHARE == 0)
            subprocess.run(["rm", "-rf", str(Path(temporary) / str(seed % 8))], check=True)
            totals["cases"] += 1
            totals["built"] += outcome.get("code") == 0
            totals["verified"] += bool(outcome.get("verified"))
            totals["refused"] += outcome.get("code") in (2, 3)
            if "fault" in outcome:
                totals["faults"].append({"seed": seed, **outcome})
                print(json.dumps({"seed": seed, **outcome}), flush=True)
                if keep:
                    keep.mkdir(parents=True, exist_ok=True)
                    (keep / f"{seed}.onnx").write_bytes(data)
    return totals


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    totals = run(args.seed, args.count, args.seconds, args.keep)
    print(json.dumps({k: v if k != "faults" else len(v) for k, v in totals.items()}))
    return 1 if totals["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
