"""Command line: models and targets in, one row each out."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.baselines import TFLM, baselines
from benchmarks.target import Result, measure
from benchmarks.targets import TARGETS, BenchmarkError


def main(argv: Sequence[str] | None = None) -> int:
    """0: every row was measured and its golden vectors came out right. 1: some were not. 2: no such file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL", help="quantized .onnx, or a generated folder")
    parser.add_argument(
        "--target", nargs="+", action="extend", choices=[*TARGETS, "all"], metavar="TARGET",
        help=f"{', '.join(TARGETS)} or all; several allowed; default m4",
    )  # fmt: skip
    parser.add_argument("--hop", type=int, default=1, help="for .onnx: input frames processed at once")
    parser.add_argument("--optimize", default="-O2", metavar="FLAGS", help="compiler flags, as in --optimize=-O3")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows as JSON, - for standard output")
    args = parser.parse_args(argv)
    targets = list(TARGETS) if "all" in (args.target or ()) else (args.target or ["m4"])

    results: list[Result] = []
    failed = False
    with tempfile.TemporaryDirectory() as work:
        for number, model in enumerate(args.models):
            try:
                folder = generated_folder(model, Path(work) / f"{number}", args.hop)
            except BenchmarkError as error:
                print(f"{model}: {error}", file=sys.stderr)
                failed = True
                continue
            if not (folder / "manifest.json").is_file():
                parser.error(f"{model}: neither an .onnx file nor a generated folder")
            for name in targets:
                try:
                    results.append(measure(folder, TARGETS[name], args.optimize))
                except BenchmarkError as error:
                    print(f"{model} on {name}: {error}", file=sys.stderr)
                    failed = True
    text = json.dumps([row(result) for result in results], indent=1) + "\n"
    if args.json == Path("-"):
        sys.stdout.write(text)
    else:
        print_table(results, args.optimize)
        if args.json:
            args.json.write_text(text)
    return 1 if failed else 0


def generated_folder(model: Path, folder: Path, hop: int) -> Path:
    """`model` itself if it is a folder, else the folder built from it. Only the latter needs the generator."""
    if model.is_dir():
        return model
    from codegen import pipeline
    from codegen.errors import CodegenError
    from codegen.options import Options
    from codegen.output_folder import write_files

    try:
        files = pipeline.build(model, Options(hop=hop))
    except CodegenError as error:
        raise BenchmarkError(str(error)) from error
    write_files(folder, files)
    return folder


def row(result: Result) -> dict[str, object]:
    """A result with what other tools need for it."""
    return {**result.as_dict(), "baselines": baselines(result.model, result.target)}


def print_table(results: list[Result], optimize: str) -> None:
    """One row a model and target."""
    table = Table(title=f"instructions under QEMU, {optimize}; bytes after linking")
    table.add_column("model", no_wrap=True)
    table.add_column("target")
    for heading in ("per", "MACs", "instructions", "per MAC", "worst push", TFLM, "code B", "weights B", "state B",
                    "scratch B", "stack B"):  # fmt: skip
        table.add_column(heading, justify="right")
    for result in results:
        tflm = baselines(result.model, result.target).get(TFLM)
        table.add_row(
            result.model,
            result.target,
            result.unit,
            f"{result.macs:,}" if result.macs else "-",
            f"{result.instructions:,.0f}",
            f"{result.instructions / result.macs:.2f}" if result.macs else "-",
            f"{result.worst_push_instructions:,.0f}",
            f"{tflm:,} ({tflm / result.instructions:.2f}x)" if tflm else "-",
            *(f"{size:,}" for size in (result.code_bytes, result.weight_bytes, result.state_bytes)),
            *(f"{size:,}" for size in (result.scratch_bytes, result.stack_bytes)),
        )
    width = None if sys.stdout.isatty() else 180
    Console(width=width).print(table)


if __name__ == "__main__":
    sys.exit(main())
