"""Generated C against the reference, the reference against onnxruntime, the codes against the float network."""

from codegen.verify.verification import Comparison, Verification, random_feed, verify

__all__ = ["Comparison", "Verification", "random_feed", "verify"]
