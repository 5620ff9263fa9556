"""Whole models by other tools, instructions for one inference.

Measured for this project's kernel study, QEMU guest instructions, best of -O2 and -O3:
TensorFlow Lite Micro with CMSIS-NN, onnx2c, emx-onnx-cgen. The models are the int8 MLPerf Tiny reference models
(github.com/mlcommons/tiny), for onnx2c and emx-onnx-cgen as ONNX. sww_streaming is one window of 30 frames, all of it
computed again for every new frame.
"""

from __future__ import annotations

TFLM = "TFLM + CMSIS-NN"
BASELINES: dict[str, dict[str, dict[str, int]]] = {
    "kws_dscnn": {
        "m4": {TFLM: 7_700_000, "onnx2c": 21_100_000, "emx-onnx-cgen": 23_000_000},
        "m55": {TFLM: 1_780_000},
    },
    "vww_mobilenet": {
        "m4": {TFLM: 24_100_000, "onnx2c": 66_000_000, "emx-onnx-cgen": 76_200_000},
        "m55": {TFLM: 6_430_000},
    },
    "ic_resnet8": {
        "m4": {TFLM: 29_900_000, "onnx2c": 124_000_000, "emx-onnx-cgen": 106_000_000},
        "m55": {TFLM: 4_810_000},
    },
    "ad_autoencoder": {
        "m4": {TFLM: 582_000, "onnx2c": 3_280_000, "emx-onnx-cgen": 3_390_000},
        "m55": {TFLM: 150_000},
    },
    "sww_streaming": {
        "m4": {TFLM: 2_230_000, "onnx2c": 6_670_000, "emx-onnx-cgen": 7_630_000},
        "m55": {TFLM: 408_000},
    },
}


def baselines(model: str, target: str) -> dict[str, int]:
    """Instructions for one inference by tool, for a model named after one of these (suffixes allowed)."""
    for name, targets in BASELINES.items():
        if model == name or model.startswith(f"{name}_"):
            return targets.get(target, {})
    return {}
