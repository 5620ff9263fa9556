"""All operators, family by family: what the importer knows is this list."""

from codegen.frontend.lower import LowerFunction
from codegen.ops import conv, einsum, elementwise, normalize, pool, qlinear, recurrent, resample, shape, softmax

FAMILIES = (elementwise, conv, einsum, pool, normalize, shape, softmax, qlinear, resample, recurrent)
LOWER: dict[tuple[str, str], LowerFunction] = {key: f for family in FAMILIES for key, f in family.LOWER.items()}
