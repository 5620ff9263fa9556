"""Command line: arguments, exit codes, writing files. No compiler logic."""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
import traceback
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from codegen import output_folder, pipeline
from codegen.emit import model_name
from codegen.errors import EXIT_INPUT, EXIT_INTERNAL, EXIT_MISMATCH, CodegenError, input_error, printable
from codegen.options import PLANS, PREFERENCES, Options
from codegen.patient_output import patient_output
from codegen.plan.kernels import TARGETS
from codegen.report import html
from codegen.report.rows import OutputRow, Report
from codegen.version import VERSION

CONFIG_FILE = "codegen.toml"
MOST_CORES = 64
BUDGETS = {
    "ram": "fail if state + scratch need more",
    "flash": "fail if constants need more (code comes on top)",
    "stack": "fail if the deepest chain of calls, measured with gcc, needs more",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. 0 ok, 1 mismatch, 2 the user's input, 3 unsupported model, 4 a fault of ours.

    A reader that goes away (`| head -1`) changes none of them.
    """
    with patient_output():
        return _run(_parser().parse_args(argv))


def _run(args: argparse.Namespace) -> int:
    try:
        command: Callable[[argparse.Namespace], int] = args.command
        return command(args)
    except CodegenError as error:
        _complain(args, error)
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INPUT
    except RecursionError:
        print("codegen: the model nests too deeply", file=sys.stderr)
        return EXIT_INPUT
    except Exception as error:
        if args.debug:
            traceback.print_exc()
        print(f"codegen: internal error: {type(error).__name__}: {error}", file=sys.stderr)
        print("This is a fault of the tool. Run again with --debug and report the output.", file=sys.stderr)
        return EXIT_INTERNAL


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="codegen", description="Quantized ONNX networks to streaming int8 C.")
    parser.add_argument("--version", action="version", version=f"onnx2stream {VERSION}")
    parser.add_argument("--debug", action="store_true", help="print a traceback for internal errors")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    build = _command(commands, "build", _build, "write C for a quantized model")
    build.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="folder to write")
    text = "kernels under their own names, the same text for every model: models of one program share them"
    build.add_argument("--shared-runtime", action="store_true", default=None, help=text)
    build.add_argument("--trace", action="store_true", default=None, help="C that records every value of every stage")
    for what, text in BUDGETS.items():
        build.add_argument(f"--{what}-budget", type=int, metavar="BYTES", help=text)
    analyze = _command(commands, "analyze", _analyze, "windows, memory and cost of any ONNX model, node by node")
    analyze.add_argument("--html", type=Path, metavar="FILE", help="write the report as one HTML file too")
    verify = _command(commands, "verify", _verify, "compile the C, stream data, compare with reference and onnxruntime")
    verify.add_argument("--trace", action="store_true", default=None, help="compare every stage of every node too")
    verify.add_argument("--data", type=Path, metavar="NPZ", help="real inputs, by input name")
    verify.add_argument("--cc", metavar="CC", help="C compiler (default: $CC, cc, gcc or clang)")
    _quantize_command(commands)
    ops = commands.add_parser("ops", help="the supported operators", description="The supported operators.")
    ops.set_defaults(command=_ops)
    ops.add_argument("--json", action="store_true", help="print the table as JSON")
    return parser


def _quantize_command(commands: Any) -> None:
    text = "write an int8 model for a float one, with a report of what each layer loses"
    parser = commands.add_parser("quantize", help=text, description=text)
    parser.set_defaults(command=_quantize)
    parser.add_argument("model", type=Path, help="a float .onnx file")
    parser.add_argument("--data", type=Path, required=True, metavar="NPZ", help="calibration clips, by input name")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="the .onnx file to write")
    parser.add_argument("--force", action="store_true", help="write over an existing file")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _command(
    commands: Any, name: str, function: Callable[[argparse.Namespace], int], text: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    parser.set_defaults(command=function)
    parser.add_argument("model", type=Path, help="an .onnx file")
    parser.add_argument("--name", help="prefix of all C names (default: from the file name)")
    parser.add_argument("--hop", type=int, metavar="N", help="most input frames processed at once (default 1)")
    parser.add_argument("--stream", metavar="AXIS", help="stream axis: number or symbol, or INPUT:AXIS")
    parser.add_argument(
        "--plan",
        choices=PLANS,
        help="stream, hybrid, whole (one push is the whole input) or auto (default)",
    )
    text = "what decides between plans: ram, latency (the largest push) or balanced (default)"
    parser.add_argument("--plan-for", choices=PREFERENCES, help=text)
    text = "cut convolutions and pools that need more into tiles that fit"
    parser.add_argument("--fast-memory", type=int, metavar="BYTES", help=text)
    parser.add_argument("--cores", type=int, metavar="N", help="cut them into at least N tasks for as many cores")
    parser.add_argument(
        "--target", choices=tuple(TARGETS), help="the processor that kernels are chosen for (default portable)"
    )
    parser.add_argument("--endless", action="store_true", default=None, help="turn a fixed window into a sliding one")
    parser.add_argument("--state", action="append", metavar="IN=OUT", help="state tensors to carry inside (repeatable)")
    text = "a state that is an output too (repeatable; all are where no other output is left)"
    parser.add_argument("--state-output", action="append", metavar="OUT", help=text)
    parser.add_argument("--cut-input", action="append", metavar="TENSOR", help="start at this tensor (repeatable)")
    parser.add_argument("--cut-output", action="append", metavar="TENSOR", help="end at this tensor (repeatable)")
    parser.add_argument("--rate", type=float, metavar="HZ", help="input frames per second, for latencies in ms")
    parser.add_argument("--config", type=Path, metavar="TOML", help=f"options file (default: ./{CONFIG_FILE})")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def _options(args: argparse.Namespace) -> Options:
    """Options from codegen.toml, overridden by the command line."""
    path = args.config or Path(CONFIG_FILE)
    values: dict[str, Any] = {}
    if args.config or path.is_file():
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise input_error("options", str(path), f"not readable as TOML ({error})") from error
    known = {f.name: f for f in fields(Options)}
    for key in values:
        if key not in known:
            raise input_error("options", str(path), f"unknown key {key}", f"known are {', '.join(sorted(known))}")
    for key in known:
        given = getattr(args, key, None)
        if given is not None:
            values[key] = given
    for key in ("state", "state_output", "cut_input", "cut_output"):
        listed = values.get(key) or ()
        if not isinstance(listed, list | tuple) or not all(isinstance(item, str) for item in listed):
            raise input_error("options", key, f"{listed}", "a list of texts")
        values[key] = tuple(listed)
    return _checked(Options(**values))


def _checked(options: Options) -> Options:
    if not isinstance(options.hop, int) or isinstance(options.hop, bool) or options.hop < 1:
        raise input_error("options", "hop", f"{options.hop}", "a whole number of at least 1")
    if options.name is not None:
        model_name.check(options.name)
    if options.shared_runtime and options.trace:
        raise input_error("options", "shared_runtime", "with trace", "one of them: a trace is of one model")
    if options.stream is not None and not isinstance(options.stream, str):
        raise input_error("options", "stream", f"{options.stream}", "AXIS or INPUT:AXIS, in quotes")
    if options.plan not in PLANS:
        raise input_error("options", "plan", f"{options.plan}", f"one of {', '.join(PLANS)}")
    if options.plan_for not in PREFERENCES:
        raise input_error("options", "plan_for", f"{options.plan_for}", f"one of {', '.join(PREFERENCES)}")
    if options.target not in TARGETS:
        raise input_error("options", "target", f"{options.target}", f"one of {', '.join(TARGETS)}")
    if options.plan == "whole" and (options.stream not in (None, "none") or options.endless):
        raise input_error("options", "plan", "whole, with --stream or --endless", "one of them")
    for what in BUDGETS:
        bytes_ = getattr(options, f"{what}_budget")
        if bytes_ is not None and (not isinstance(bytes_, int) or isinstance(bytes_, bool) or bytes_ < 0):
            raise input_error("options", f"{what}_budget", f"{bytes_}", "a whole number of bytes")
    for key, most in (("fast_memory", (1 << 31) - 1), ("cores", MOST_CORES)):
        number = getattr(options, key)
        if number is not None and (not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= most):
            raise input_error("options", key, f"{number}", f"a whole number from 1 to {most}")
    rate = options.rate
    if rate is not None and (not isinstance(rate, int | float) or isinstance(rate, bool) or not rate > 0):
        raise input_error("options", "rate", f"{options.rate}", "frames per second above 0")
    return options


def _build(args: argparse.Namespace) -> int:
    folder: Path = args.output
    output_folder.check(folder)
    options = _options(args)
    with _progress(args, "building"):
        compiled, files = pipeline.build_files(args.model, options)
    edited = output_folder.write(folder, files)
    for name in edited:
        print(
            f"{folder / name} is of an earlier build and was edited: it stays, and is no part of this one",
            file=sys.stderr,
        )
    if args.json:
        print(json.dumps(compiled.report.to_json(), indent=1))
    else:
        _print_report(compiled.report)
        print(f"wrote {len(files)} files to {folder}")
    return 0


def _analyze(args: argparse.Namespace) -> int:
    report = pipeline.analyze(args.model, _options(args))
    if args.html is not None:
        output_folder.write_file(args.html, html.page(report, args.model.name))
    if args.json:
        print(json.dumps(report.to_json(), indent=1))
    else:
        _print_report(report)
    return 0


def _verify(args: argparse.Namespace) -> int:
    from codegen.verify.verification import verify

    with _progress(args, "verifying"):
        result = verify(args.model, _options(args), args.data, args.cc)
    if args.json:
        print(json.dumps(result.to_json(), indent=1))
    else:
        for line in result.lines():
            print(line)
    return 0 if result.passed and not result.undeclared else EXIT_MISMATCH


def _quantize(args: argparse.Namespace) -> int:
    from codegen.quantize import quantize

    with _progress(args, "quantizing") as status:
        tell = status.update if status is not None else lambda text: None
        result = quantize(args.model, args.data, args.output, force=args.force, tell=tell)
    if args.json:
        print(json.dumps(result.to_json(), indent=1))
        return 0
    table = Table(title=f"int8 against float, {result.clips} calibration clips")
    paths = any(layer.path for layer in result.layers)
    for name in ("layer", *(["module"] if paths else []), "op", "SQNR dB", "lost dB"):
        table.add_column(name, justify="right" if name.endswith("dB") else "left", overflow="fold")
    for layer in result.layers:
        cells = [layer.layer, *([layer.path] if paths else []), layer.op]
        cells += [f"{layer.sqnr_db:.1f}", f"{layer.loss_db:.1f}"]
        table.add_row(*(_plain(cell) for cell in cells))
    _table_console().print(table)
    for note in result.notes:
        print(f"note: {note}")
    for layer in result.warnings:
        where = f" at {printable(layer.path)}" if layer.path else ""
        text = f"{printable(layer.layer)} ({layer.op}){where}: {layer.sqnr_db:.1f} dB, {layer.loss_db:.1f} dB lost here"
        print(f"warning: {text}. Calibrate with more data, or train with quantization")
    for problem in result.refused:
        print(f"note: `build` refuses it: {problem}")
    after = "" if result.refused else f"; next: codegen build {result.output} -o DIR"
    print(f"wrote {result.output}{after}")
    return 0


def _ops(args: argparse.Namespace) -> int:
    from codegen.frontend.onnx import table as operators

    if args.json:
        print(json.dumps(operators.to_json(), indent=1))
    else:
        print(operators.markdown())
    return 0


def _progress(args: argparse.Namespace, text: str) -> Any:
    """A spinner on a terminal; nothing anywhere else."""
    console = Console(stderr=True)
    if args.json or not console.is_terminal:
        from contextlib import nullcontext

        return nullcontext()
    return console.status(text)


def _table_console() -> Console:
    return Console(soft_wrap=False, width=None if sys.stdout.isatty() else 160)


def _print_report(report: Report) -> None:
    console = _table_console()
    table = Table(title=f"{report.kind}, hop {report.hop}", show_lines=False)
    paths = any(row.path for row in report.nodes)
    names = ["#", "node", *(["module"] if paths else []), "op", "window", "frame", "[S,a,b]", "rf", "lookahead"]
    kernels = any(row.kernel for row in report.nodes)
    names += ["keep", "state B", "MACs", "weights B", *(["kernel"] if kernels else [])]
    for name in names:
        right = name in ("#", "rf", "lookahead", "keep", "state B", "MACs", "weights B")
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in report.nodes:
        extent = row.extent
        ended = extent is None or bool(extent.ended)
        cells = [str(row.index), row.name, *([row.path] if paths else []), row.op, row.detail]
        cells += [
            "x".join(map(str, row.frame)),
            "-" if extent is None else (f"ended: {extent.ended}" if extent.ended else str(extent)),
            "-" if ended or extent is None or extent.rf is None else str(extent.rf),
            "-" if ended or extent is None or extent.lookahead is None else _lookahead(extent.lookahead, report.rate),
            str(row.keep),
            str(row.state_bytes),
            str(row.macs),
            str(row.weight_bytes),
            *([row.kernel] if kernels else []),
        ]
        table.add_row(*(_plain(cell) for cell in cells))
    console.print(table)
    chosen = [row for row in report.nodes if row.kernel_reason]
    for row in chosen:
        print(f"kernel of {printable(row.name)}: {row.kernel}, {row.kernel_reason}")
    for output in report.outputs:
        if output.extent.ended:
            print(f"output {output.name}: once per sequence ({output.extent.ended})")
        else:
            print(f"output {output.name}: [S,a,b] = {output.extent}, {_latency(output, report.rate)}")
    for note in report.notes:
        print(f"note: {note}")
    if report.legal:
        print(f"legal lengths: {report.legal}")
    print(
        f"state {report.state_bytes} B, scratch {report.scratch_bytes} B, weights {report.weight_bytes} B, "
        f"{report.macs_mean} MACs per frame (largest push {report.macs_peak})"
    )
    if report.plan is not None and report.means is not None:
        where = f" at {printable(report.plan.cut)}" if report.plan.cut else ""
        least = f"at least {report.means.lower_bound} B in this order"
        print(f"plan {report.plan.plan}{where}, memory {report.means.form}: {least}")
    for tile in report.tiles:
        print(f"tiles of {printable(tile.name)}: {str(tile.plan).splitlines()[0]}")
    _print_plans(report)
    _print_hops(report)


def _print_plans(report: Report) -> None:
    """The plans that no other beats in both RAM and largest push, where there is a choice."""
    row = report.plan
    if row is None or len(row.front) < 2:
        return
    print(f"  {'':6} {'RAM B':>9} {'MACs per push':>13}  streamed up to (--plan-for {row.plan_for})")
    for point in row.front:
        mark = "chosen" if point.cut == row.cut else ""
        print(f"  {mark:6} {point.ram_bytes:>9} {point.push_macs:>13}  {printable(point.cut) or 'the end'}")


def _print_hops(report: Report) -> None:
    if len(report.hops) > 1:
        print(f"{'hop':>5} {'state B':>9} {'scratch B':>9} {'MACs per push':>13} {'weights B per frame':>19}")
    for row in report.hops if len(report.hops) > 1 else ():
        numbers = (
            f"{row.state_bytes:>9} {row.scratch_bytes:>9} {row.macs_per_push:>13} {row.weight_bytes_per_frame:>19}"
        )
        print(f"{row.hop:>5} {numbers}")


def _latency(output: OutputRow, rate: float | None) -> str:
    """Algorithmic latency (the model's lookahead) and buffering latency (waiting for a full hop) of one output."""

    def frames(count: int) -> str:
        return f"{count} frames" + (f" = {1000 * count / rate:g} ms" if rate else "")

    wait = f"waits at most {frames(output.hop_wait)} for a full hop"
    return f"rf {output.extent.rf}, lookahead {frames(output.lookahead)}, {wait}"


def _lookahead(value: Any, rate: float | None) -> str:
    return f"{value}" if not rate else f"{value} ({1000 * float(value) / rate:g} ms)"


def _plain(text: str) -> str:
    """Model text is data: no markup, no control characters."""
    return "".join(c if c.isprintable() else "?" for c in text).replace("[", r"\[")


def _complain(args: argparse.Namespace, error: CodegenError) -> None:
    if getattr(args, "json", False):
        problems = [vars(problem) for problem in error.problems]
        print(json.dumps({"error": error.stage, "problems": problems, "exit_code": error.exit_code}, indent=1))
    for problem in error.problems:
        print(f"codegen: {error.stage}: {problem}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
