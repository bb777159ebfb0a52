"""Toy language models by optimum's exporter: a prompt, then tokens with a growing cache.

    python -m tests.field.sources.optimum_models FOLDER [--only PATTERN...]

Needs the packages of requirements/optimum.txt. A model that cannot be exported leaves NAME.failed.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import torch
import transformers
from optimum.exporters.onnx import onnx_export_from_model

from tests.field.feeds import write_feeds
from tests.field.sources.genai import COMMON, HEAD, WORDS, steps

SIZES: dict[str, Any] = {"vocab_size": WORDS, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}

DECODERS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "bloom": ("Bloom", {**SIZES, "hidden_size": 64, "n_layer": 2, "n_head": 4}),
    "gpt2": ("GPT2", {**SIZES, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128}),
    "gpt_neox": ("GPTNeoX", {**COMMON, "rotary_pct": 0.5}),
    "llama": ("Llama", COMMON),
    "mistral": ("Mistral", COMMON),
    "opt": ("OPT", {**COMMON, "ffn_dim": 96, "word_embed_proj_dim": 64}),
    # optimum sizes Phi's cache by its query heads.
    "phi": ("Phi", {**COMMON, "num_key_value_heads": 4}),
    "qwen2": ("Qwen2", COMMON),
    "qwen3": ("Qwen3", COMMON),
}
"""The prefix of the classes in transformers, and the configuration."""


def write(name: str, target: Path) -> None:
    """Export a model with random weights, and write its inputs. Raises what the exporter raises."""
    prefix, values = DECODERS[name]
    config = getattr(transformers, f"{prefix}Config")(**values)
    torch.manual_seed(0)
    suffix = "LMHeadModel" if prefix == "GPT2" else "ForCausalLM"
    model = getattr(transformers, prefix + suffix)(config).eval()
    for weights in model.parameters():
        noise = torch.randn_like(weights)
        weights.data = weights.data + 0.05 * noise if weights.ndim == 1 else 0.15 * noise
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        onnx_export_from_model(model, Path(folder), task="text-generation-with-past", do_validation=False)
        # One file, as the weights' name would be the same for all.
        onnx.save(onnx.load(Path(folder) / "model.onnx"), target)
    write_feeds(target, steps(target, HEAD))


def main(argv: Sequence[str] | None = None) -> None:
    """Export what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.field.sources.optimum_models", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN")
    options = parser.parse_args(argv)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in DECODERS:
        if not any(fnmatch.fnmatch(name, pattern) for pattern in options.only):
            continue
        print(name, file=sys.stderr, flush=True)
        target = options.folder / f"{name}.onnx"
        try:
            write(name, target)
        except Exception as error:  # noqa: BLE001 - the exporter raises anything
            target.unlink(missing_ok=True)
            reason = f"{type(error).__name__}: {error}"[:800]
            target.with_suffix(".failed").write_text(reason, encoding="utf-8")


if __name__ == "__main__":
    main()
