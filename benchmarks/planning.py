"""Processor seconds of `codegen build`, start and imports left out, and the RAM that came of it.

python -m benchmarks.planning model.onnx ...
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from codegen.errors import CodegenError
from codegen.options import Options
from codegen.pipeline import compile_model, render


def main() -> None:
    print("| model | CPU s | RAM B | plan |")
    print("| --- | ---: | ---: | --- |")
    for path in map(Path, sys.argv[1:]):
        start = time.process_time()
        try:
            compiled = compile_model(path, Options())
            render(compiled)
        except CodegenError:
            print(f"| {path.stem} | {time.process_time() - start:.1f} | | refused |", flush=True)
            continue
        plan = compiled.report.plan
        seconds, ram = time.process_time() - start, compiled.layout.ram_bytes
        print(f"| {path.stem} | {seconds:.1f} | {ram} | {plan.plan if plan else ''} |", flush=True)


if __name__ == "__main__":
    main()
