"""`onnx.backend.base.Backend` over the generated C: ONNX's own conformance runner can drive it.

    import codegen.backend as backend
    outputs = backend.prepare(model).run([x0, x1])

A model is built, compiled with the host's C compiler and loaded. `is_compatible` is False for models that the tool
refuses, which is how the runner learns to skip them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx.backend.base import Backend, BackendRep

from codegen import output_folder
from codegen.errors import CodegenError, input_error
from codegen.frontend.load import NEWEST_IR, OPSETS
from codegen.host import HostModel, load
from codegen.options import Options
from codegen.pipeline import build, compile_model

STAGE = "backend"
Array = npt.NDArray[Any]


class CodegenRep(BackendRep):
    """A compiled model; `host` is the same as `codegen.host.load` returns."""

    def __init__(self, host: HostModel) -> None:
        self.host = host

    def run(self, inputs: Sequence[Array] | Mapping[str, Array] | Array, **kwargs: Any) -> tuple[Array, ...]:
        """Whole clips in, whole clips out: inputs by position or by name, outputs in the order of the graph."""
        names = [port.name for port in self.host.inputs]
        if isinstance(inputs, Mapping):
            feed = {name: np.asarray(inputs[name]) for name in names}
        else:
            values = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
            if len(values) != len(names):
                raise input_error(STAGE, "run", f"{len(values)} inputs", f"{len(names)}: {', '.join(names)}")
            feed = dict(zip(names, map(np.asarray, values), strict=True))
        result = self.host.run(feed)
        return tuple(result[port.name] for port in self.host.outputs)


class CodegenBackend(Backend):
    """Builds with default options; keyword arguments of `prepare` are fields of `Options`."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether the tool builds the model (its refusals name nodes and reasons: call `prepare` to see them)."""
        try:
            with tempfile.TemporaryDirectory() as folder:
                compile_model(_saved(model, Path(folder)), Options(**kwargs))
        except CodegenError:
            return False
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> CodegenRep:
        """Build, compile and load. Raises CodegenError for a model that is refused."""
        if not cls.supports_device(device):
            raise input_error(STAGE, "device", device, "CPU")
        with tempfile.TemporaryDirectory() as folder:
            files = build(_saved(model, Path(folder)), Options(**kwargs))
            out = Path(folder) / "out"
            output_folder.write(out, files)
            return CodegenRep(load(out))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Array, ...]:
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Array, ...]:
        """One node that keeps the type of its first input, with every input at run time."""
        values = [np.asarray(value) for value in inputs]
        ports = [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in zip((n for n in node.input if n), values, strict=True)
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        for port in outputs:
            port.type.tensor_type.elem_type = ports[0].type.tensor_type.elem_type
        graph = onnx.helper.make_graph([node], "node", ports, outputs)
        opset = onnx.helper.make_opsetid("", min(onnx.defs.onnx_opset_version(), OPSETS[-1]))
        model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=min(onnx.IR_VERSION, NEWEST_IR))
        return cls.run_model(model, values, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.partition(":")[0] == "CPU"


def _saved(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


is_compatible = CodegenBackend.is_compatible
prepare = CodegenBackend.prepare
run_model = CodegenBackend.run_model
run_node = CodegenBackend.run_node
supports_device = CodegenBackend.supports_device
