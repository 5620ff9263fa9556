"""Graph -> Graph, in the order they run; then those that options ask for:
make_endless (--endless), carry_state (--state).

`check_graph` looks at what each of them leaves behind.
"""

from codegen.passes.constant_channels import remove_constant_channels
from codegen.passes.count_copies import count_copies
from codegen.passes.fold_pads import fold_pads
from codegen.passes.fuse_tables import fuse_tables

PASSES = (fold_pads, remove_constant_channels, fuse_tables, count_copies)
