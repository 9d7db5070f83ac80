"""The task, the learning recipe, export and inference."""

from pathlib import Path

SHIPPED = Path(__file__).parent / "checkpoints" / "policy.onnx"  # the policy that comes with birdie
