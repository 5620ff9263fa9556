"""What generated code costs on emulated microcontrollers; `python -m benchmarks MODEL --target m4`."""
