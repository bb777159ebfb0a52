"""YOLO-style networks with random weights, exported by their own library, with the suppression inside or not.

    python -m tests.field.sources.detectors FOLDER

Needs the packages of requirements/detectors.txt.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import torch

# torchvision declares shapes for operators that it has only beside the build of torch it was made for.
_NAMES = torch.library.Library("torchvision", "DEF")
for _name in (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
):
    _NAMES.define(_name)

import torchvision  # noqa: E402
import ultralytics  # noqa: E402 - imports torchvision

from tests.field.feeds import write_feeds  # noqa: E402
from tests.field.sources.exporting import export_all  # noqa: E402
from tests.images import smooth  # noqa: E402


def suppress(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
    """Which boxes stay; what torchvision's own operator computes while a network is traced."""
    kept: list[int] = []
    for index in scores.argsort(descending=True).tolist():
        others = boxes[kept]
        low, high = (
            torch.maximum(others[:, :2], boxes[index, :2]),
            torch.minimum(others[:, 2:], boxes[index, 2:]),
        )
        common = (high - low).clamp(min=0).prod(1)
        areas = (others[:, 2:] - others[:, :2]).prod(1) + (boxes[index, 2:] - boxes[index, :2]).prod()
        if not (common > threshold * (areas - common)).any():
            kept.append(index)
    return torch.tensor(kept, dtype=torch.int64)


_NAMES.impl("nms", suppress, "CPU")
torchvision.extension._has_ops = lambda: True

NETWORKS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "yolov8n": ("yolov8n.yaml", {"dynamic": True}),
    "yolov8n_nms": ("yolov8n.yaml", {"nms": True, "conf": 0.0, "max_det": 20}),
    "yolo11n": ("yolo11n.yaml", {"dynamic": True}),
    "yolo11n_nms": ("yolo11n.yaml", {"nms": True, "conf": 0.0, "max_det": 20}),
    "yolo11n_seg": ("yolo11n-seg.yaml", {}),
    "yolo11n_pose": ("yolo11n-pose.yaml", {}),
    "yolo11n_obb": ("yolo11n-obb.yaml", {}),
    "yolo11n_cls": ("yolo11n-cls.yaml", {"dynamic": True}),
    "yolov10n": ("yolov10n.yaml", {}),
    "yolo11n_half_size": ("yolo11n.yaml", {"simplify": False, "opset": 13}),
}
SIDE = 128


def settle(model: torch.nn.Module) -> None:
    """Set the statistics of normalisations from one run.

    Without them, signals die away in untrained layers, all scores are alike, and rounding decides what is
    detected.
    """
    for layer in model.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.momentum = 1.0
    model.train()
    with torch.no_grad():
        model(torch.from_numpy(smooth((4, 3, SIDE, SIDE), 5)))
    model.eval()


def write(name: str, target: Path) -> None:
    """Export a network. Raises what the exporter raises."""
    config, options = NETWORKS[name]
    torch.manual_seed(0)
    model = ultralytics.YOLO(config, verbose=False)
    settle(model.model)
    with tempfile.TemporaryDirectory() as folder:
        # Exports lie beside the weights.
        model.ckpt_path = str(Path(folder) / f"{name}.pt")
        model.model.pt_path = model.ckpt_path
        made = model.export(
            **{"format": "onnx", "imgsz": SIDE, "simplify": True, "verbose": False, **options}
        )
        shutil.move(made, target)
    graph = onnx.load(target).graph
    is_open = any(d.dim_param for d in graph.input[0].type.tensor_type.shape.dim)
    shapes = [(1, 3, SIDE, SIDE), *([(2, 3, SIDE, SIDE + 32)] if is_open else [])]
    write_feeds(target, [{graph.input[0].name: smooth(shape, 3)} for shape in shapes])


def main(argv: Sequence[str] | None = None) -> None:
    """Export them all."""
    export_all("detectors", __doc__, NETWORKS, write, argv)


if __name__ == "__main__":
    main()
