"""Run folders -> TensorBoard, MLflow or Weights & Biases, while a run goes on or afterwards.

A tracker gets what a run folder holds, and nothing else. Each of them is an optional extra.
"""
