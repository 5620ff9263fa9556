"""onnx2stream: streaming int8 C from quantized ONNX networks."""

from codegen.errors import CodegenError
from codegen.options import Options
from codegen.pipeline import analyze, build
from codegen.version import VERSION as __version__

__all__ = ["CodegenError", "Options", "__version__", "analyze", "build"]
