"""All operators of ONNX that are read, family by family: what the importer knows is this list."""

from codegen.frontend.lower import LowerFunction
from codegen.frontend.onnx import (
    conv,
    conv_transpose,
    einsum,
    elementwise,
    gather,
    normalize,
    pool,
    products,
    qlinear,
    quantize,
    recurrent,
    reduce,
    resample,
    shape,
    softmax,
)

FAMILIES = (
    quantize,
    elementwise,
    conv,
    products,
    einsum,
    pool,
    reduce,
    normalize,
    shape,
    softmax,
    qlinear,
    conv_transpose,
    resample,
    gather,
    recurrent,
)
LOWER: dict[tuple[str, str], LowerFunction] = {key: f for family in FAMILIES for key, f in family.LOWER.items()}
