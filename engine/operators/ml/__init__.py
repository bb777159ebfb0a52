"""Classical machine learning: the operators of the domain ai.onnx.ml."""
