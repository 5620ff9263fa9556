"""Graph -> Graph, in the order they run."""

from codegen.passes.fold_pads import fold_pads

PASSES = (fold_pads,)
