"""onnxruntime's own operators (domain com.microsoft), its contrib operators."""
