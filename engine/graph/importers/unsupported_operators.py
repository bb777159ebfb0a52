"""Advice on unsupported operators: the exporter's option that avoids them."""

from __future__ import annotations

from engine.graph.model import CONTRIB

_OTHER_PROVIDER = "saved for another execution provider: save it with CPUExecutionProvider alone"
_EXTENSIONS = "part of onnxruntime-extensions: export without it, and do that step in your program"

_OPTIONS: tuple[tuple[str, str, str], ...] = (
    (
        "com.microsoft.nchwc",
        "*",
        "saved by onnxruntime for one kind of processor: save it with SessionOptions."
        "graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_EXTENDED, not ORT_ENABLE_ALL",
    ),
    ("com.ms.internal.nhwc", "*", _OTHER_PROVIDER),
    (CONTRIB, "EPContext", "compiled for one device: export without ep.context_enable"),
    (
        CONTRIB,
        "BeamSearch GreedySearch Sampling WhisperBeamSearch",
        "a whole search: export the decoder alone (onnxruntime-genai's model builder, or optimum-cli export "
        "onnx --task text-generation-with-past) and choose the tokens in your program",
    ),
    (
        CONTRIB,
        "BiasDropout BiasSoftmax BitmaskBiasDropout BitmaskDropout DecoderAttention "
        "DecoderMaskedSelfAttention GatedRelativePositionBias GemmaRotaryEmbedding GemmFastGelu "
        "LongformerAttention RelativePositionBias",
        "written for GPUs: run onnxruntime.transformers.optimizer without use_gpu, or without the fusion "
        "(its --disable_ options)",
    ),
    (
        CONTRIB,
        "PackedAttention PackedMultiHeadAttention RemovePadding RestorePadding",
        "packing mode, for CUDA alone: use the model from before convert_to_packing_mode",
    ),
    (
        CONTRIB,
        "DequantizeBFP DequantizeWithOrder GemmFloat8 QOrderedAttention QOrderedGelu "
        "QOrderedLayerNormalization QOrderedLongformerAttention QOrderedMatMul QuantizeBFP QuantizeWithOrder",
        "for one kind of hardware: use quantize_static or quantize_dynamic of onnxruntime.quantization",
    ),
    (
        CONTRIB,
        "GatedDeltaNetStateReplay HyperConnectionLowRankMix MatMulBlockQuantizedFp4Weight "
        "MatMulBlockQuantizedFp8Weight MatMulNBitsMlp MatMulNBitsQkv MoEPacked PagedAttention RMSNormRotary "
        "RouterGateUpProj SparsePagedAttention",
        "written for GPUs by onnxruntime-genai's model builder: build with -e cpu",
    ),
    (
        "org.pytorch.aten",
        "*",
        "PyTorch's own: export with torch.onnx.export(..., dynamo=True), or with a newer opset_version",
    ),
    (
        "",
        "ATen BatchedNMSDynamic_TRT BatchedNMS_TRT DisentangledAttention_TRT EfficientNMSX_TRT "
        "EfficientNMS_TRT MultilevelCropAndResize_TRT PyramidROIAlign_TRT",
        "not ONNX's: export for onnxruntime, not for TensorRT or Caffe2 (suppression as NonMaxSuppression, "
        "operator_export_type ONNX)",
    ),
    ("TRT", "*", "a plugin of TensorRT: export for onnxruntime, with NonMaxSuppression or none"),
    ("trt.plugins", "*", "a plugin of TensorRT: export for onnxruntime, with NonMaxSuppression or none"),
    ("mmdeploy", "*", "MMDeploy's own: export with a deploy config of ONNX's operators alone"),
    ("ai.onnx.contrib", "*", _EXTENSIONS),
    ("com.microsoft.extensions", "*", _EXTENSIONS),
)

_BY_NAME = {(domain, name): text for domain, names, text in _OPTIONS for name in names.split()}


def export_advice(domain: str, op_type: str) -> str | None:
    """Advice on how to export the model without an unsupported operator, if any is known."""
    return _BY_NAME.get((domain, op_type)) or _BY_NAME.get((domain, "*"))
