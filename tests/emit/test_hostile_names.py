"""Names from the file that would break C: comment ends, newlines, quotes, keywords, other alphabets, nothing at all."""

from __future__ import annotations

import numpy as np
import pytest
from checks import PREFIX, Script, Workshop, assert_same, code_frames, reference_frames, run_tool
from models import Net

from codegen.verify.verification import random_feed

STRICT = ("-std=c99", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror")
STEMS = {
    "comment_end": "*/ int evil; /*",
    "comment_start": "/* //",
    "newline": "a\nb\r\n#error evil\n",
    "quotes": "\"'`$(rm)`%s%n",
    "backslash": "ends with a backslash \\",
    "trigraph": "what??/",
    "keyword": "int",
    "cpp_keyword": "class",
    "macro": "NULL",
    "ours": "state_t",
    "foreign": "größe_活性化_🎤",
    "digits": "0123",
    "punctuation": "/model/conv.1/Conv:0",
    "long": "x" * 500,
    "template": "{{ name }} {% raw %}",
    "control": "bell\x07\x1b[31mred\x00end",
}


@pytest.mark.parametrize("case", STEMS)
def test_hostile_names(shop: Workshop, case: str) -> None:
    """Tensors and nodes are all called alike, told apart by a suffix that sanitising removes or keeps."""
    stem = STEMS[case]
    seen: dict[str, str] = {}

    def wrap(name: str) -> str:
        if name not in seen:
            seen[name] = stem if not seen else stem + " " * (len(seen) % 7) + "*" * (len(seen) // 7)
        return seen[name]

    net = Net("int8", seed=1, wrap=wrap)
    x = net.input([1, 3, "T"], name="x")
    y = net.conv(x, 4, [3], pads=[2, 0])
    net.output(net.add(y, net.conv(y, 4, [2], pads=[0, 1])))
    net.output(net.conv(y, 2, [1]))
    check(shop, net)


@pytest.mark.parametrize(
    "names", [("int", "int_"), ("a b", "a_b"), ("x", "X"), ("clock", "padding_"), ("st", "in"), ("é", "è")]
)
def test_border_names_that_meet(shop: Workshop, names: tuple[str, str]) -> None:
    """Two inputs and two outputs whose identifiers would be the same, or those of the generated structs."""
    net = Net("int8", seed=2)
    a, b = (net.input([1, 2, "T"], name=name) for name in names)
    y = net.conv(a, 2, [3], pads=[2, 0])
    net.output(net.add(y, b), name=f"{names[0]} out")
    net.output(y, name=f"{names[1]} out")
    check(shop, net)


def check(shop: Workshop, net: Net) -> None:
    g = shop.build(net.model())
    for compiler in ("gcc", "clang"):
        shop.objects(g.sources, compiler, STRICT)
    for path, text in g.files.items():
        if path.endswith((".c", ".h")) and "_rt." not in path and "_rt_" not in path:
            assert text.isascii() and "??" not in text, path
            assert all(line.startswith(("#define ", "    ")) for line in text.split("\n") if line.endswith("\\")), path
    total = 25
    frames = code_frames(g, random_feed(g.graph, total, 3))
    want = reference_frames(g, frames)
    script = Script(g)
    for at in range(0, total, 4):
        script.push([f[at : at + 4] for f in frames], min(4, total - at))
    script.finish()
    answers = script.run(shop.driver(g, "gcc"))
    for i in range(len(want)):
        assert_same(np.concatenate([outs[i] for _, outs in answers]), want[i], f"output {i}")


@pytest.mark.parametrize(
    "name", ["*.onnx", "ünïcode model.onnx", "1 2.onnx", "int.onnx", "-o.onnx", "---.onnx", "main.onnx"]
)
def test_file_names(shop: Workshop, name: str) -> None:
    """The prefix comes from the file's name: an identifier, and no keyword."""
    from codegen import build

    net = Net("int8", seed=1)
    net.output(net.conv(net.input([1, 3, "T"]), 4, [3]))
    path = shop.save(net.model()).parent / name
    path.write_bytes(net.model().SerializeToString())
    files = build(path)
    (header,) = [p for p in files if p.endswith("_weights.h")]
    prefix = header.removeprefix("src/").removesuffix("_weights.h")
    assert prefix.isidentifier() and prefix.isascii() and prefix not in ("int", "main")
    folder = path.parent / "out"
    for file, text in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    run_tool(["gcc", *STRICT, "-fsyntax-only", *sorted((folder / "src").glob("*.c"))])
    assert PREFIX  # the other tests' prefix is fixed; here it is the file's
