"""Toy language models by onnxruntime-genai's model builder: a prompt, then tokens with a growing cache.

    python -m tests.field.sources.genai FOLDER [--only PATTERN...]

Needs the packages of requirements/genai.txt. A model that the builder cannot make leaves NAME.failed.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import onnx
import onnxruntime
import tokenizers
import torch
import transformers

from tests.field.feeds import Feed, write_feeds

WORDS = 128
HEAD = 16
HALF_TURNED = 2 * HEAD
"""The size of heads of which half is rotated: onnxruntime rotates multiples of 16."""
WINDOW = 8
COMMON: dict[str, Any] = {
    "vocab_size": WORDS, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "head_dim": HEAD,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}

ARCHITECTURES: Mapping[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", {}),
    "llama_tied": ("LlamaConfig", "LlamaForCausalLM", {"tie_word_embeddings": True}),
    "mistral": ("MistralConfig", "MistralForCausalLM", {"sliding_window": WINDOW}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", {}),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {}),
    "phi": (
        "PhiConfig", "PhiForCausalLM",
        {"partial_rotary_factor": 0.5, "num_attention_heads": 2, "head_dim": HALF_TURNED},
    ),
    "phi3": (
        "Phi3Config", "Phi3ForCausalLM", {"original_max_position_embeddings": 128, "num_key_value_heads": 4},
    ),
    "gemma": ("GemmaConfig", "GemmaForCausalLM", {}),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM", {"sliding_window": WINDOW, "query_pre_attn_scalar": 16}),
    "gptoss": ("GptOssConfig", "GptOssForCausalLM", {**EXPERTS, "sliding_window": WINDOW}),
    "granite": ("GraniteConfig", "GraniteForCausalLM", {}),
    "hunyuan": ("HunYuanDenseV1Config", "HunYuanDenseV1ForCausalLM", {}),
    "ernie": ("Ernie4_5Config", "Ernie4_5ForCausalLM", {}),
    "lfm2": ("Lfm2Config", "Lfm2ForCausalLM", {"layer_types": ["conv", "full_attention"]}),
    "nemotron": ("NemotronConfig", "NemotronForCausalLM", {"head_dim": HALF_TURNED}),
    "olmo": ("OlmoConfig", "OlmoForCausalLM", {}),
    "smollm3": ("SmolLM3Config", "SmolLM3ForCausalLM", {"no_rope_layers": [1, 0]}),
}  # fmt: skip
TIED = ("int4_tied",)
UNTIED = ("int4_qdq",)
"""Forms that need embeddings that are the head's weights as well, and those that need others."""
FORMS: Mapping[str, tuple[str, list[str]]] = {
    "fp32": ("fp32", []),
    "fp16": ("fp16", []),
    "int4": ("int4", []),
    "int4_qdq": ("int4", ["use_qdq=true"]),
    "int4_tied": ("int4", ["shared_embeddings=true"]),
}
TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
}


def configured(name: str) -> Any:
    """The configuration of an architecture at toy size."""
    config_class, _, values = ARCHITECTURES[name]
    return getattr(transformers, config_class)(**{**COMMON, **values})


def write_source(name: str, folder: Path) -> None:
    """Save a model with random weights, and a tokenizer, as transformers does."""
    config, architecture = configured(name), ARCHITECTURES[name][1]
    config.architectures = [architecture]
    torch.manual_seed(0)
    kind = getattr(transformers, architecture, None) or getattr(transformers, architecture.capitalize(), None)
    model = (kind or transformers.AutoModelForCausalLM.from_config)(config).eval()
    for weights in model.parameters():
        noise = torch.randn_like(weights)
        weights.data = weights.data + 0.05 * noise if weights.ndim == 1 else 0.15 * noise
    model.save_pretrained(folder)
    # Saving the model writes the class's own name.
    config.save_pretrained(folder)
    vocabulary = tokenizers.models.WordLevel({f"t{n}": n for n in range(WORDS)}, unk_token="t0")
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(vocabulary),
        bos_token="t1", eos_token="t2", pad_token="t0", unk_token="t0",
    )  # fmt: skip
    made.save_pretrained(folder)


def build(source: Path, target: Path, form: str) -> None:
    """Run the builder. Raises what it raises."""
    spec = find_spec("onnxruntime_genai")
    if spec is None or spec.origin is None:
        raise ImportError("onnxruntime_genai is not installed")
    models = str(Path(spec.origin).parent / "models")
    if models not in sys.path:
        sys.path.insert(0, models)  # the builder is a script beside its modules
    builder: Any = importlib.import_module("builder")
    precision, options = FORMS[form]
    with tempfile.TemporaryDirectory() as cache, contextlib.redirect_stdout(sys.stderr):
        extra = builder.parse_extra_options("", str(source), str(target), precision, "cpu", cache, options)
        builder.create_model("", str(source), str(target), precision, "cpu", cache, **extra)


def sliding_caches(model: Path) -> dict[str, int]:
    """Inputs that are caches of a fixed number of the latest tokens, and that number."""
    found: dict[str, int] = {}
    for layer in onnx.load(model).graph.node:
        numbers = {a.name: a.i for a in layer.attribute}
        if numbers.get("sliding_window_cache"):
            found |= dict.fromkeys(layer.input[3:5], numbers["local_window_size"])
    return found


def steps(model: Path, head: int) -> list[Feed]:
    """The inputs of a prompt and of the tokens after it, with the caches that onnxruntime returns.

    head: the size of a head.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # The builder names sizes alike that are not, which onnxruntime believes where it shares memory.
    options.enable_mem_reuse = False
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_outputs()]
    rng = np.random.default_rng(0)
    windows = sliding_caches(model)
    cache: Feed = {}
    past = 0
    feeds = []
    # Of a sliding cache onnxruntime leaves undefined what no token has reached: the prompt fills it.
    for count in (WINDOW + 1 if windows else 5, 1, 1):
        feed: Feed = {}
        for item in session.get_inputs():
            dtype = TYPES[item.type]
            if item.name == "input_ids":
                feed[item.name] = rng.integers(3, WORDS, (1, count)).astype(dtype)
            elif item.name == "attention_mask":
                feed[item.name] = np.ones((1, past + count), dtype)
            elif item.name == "position_ids":
                feed[item.name] = np.arange(past, past + count, dtype=dtype)[None]
            elif item.name.startswith("past"):
                # (batch, heads, past, size of a head). Only the weights may tell the last one.
                known = (1, 0, windows.get(item.name, 0), head)
                open_sizes = [d if isinstance(d, int) else known[n] for n, d in enumerate(item.shape)]
                feed[item.name] = cache.get(item.name, np.zeros(open_sizes, dtype))
            else:
                raise ValueError(f"what to feed '{item.name}' is not known")
        results = dict(zip(names, session.run(names, feed), strict=True))
        feeds.append(feed)
        past += count
        for name, value in results.items():
            for old in ("past_key_values", "past"):
                cache[name.replace("present", old, 1)] = value
    return feeds


def write(name: str, form: str, source: Path, target: Path) -> None:
    """Build one model and its inputs. Raises what the builder raises."""
    with tempfile.TemporaryDirectory() as folder:
        build(source, Path(folder), form)
        # One file, as the weights' name would be the same for all.
        onnx.save(onnx.load(Path(folder) / "model.onnx"), target)
    write_feeds(target, steps(target, ARCHITECTURES[name][2].get("head_dim", HEAD)))


def main(argv: Sequence[str] | None = None) -> None:
    """Build what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.field.sources.genai", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN", help="of NAME-FORM")
    options = parser.parse_args(argv)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in ARCHITECTURES:
        source = Path(tempfile.mkdtemp())
        is_tied = configured(name).tie_word_embeddings
        try:
            for form in FORMS:
                target = options.folder / f"{name}-{form}.onnx"
                if form in (UNTIED if is_tied else TIED):
                    continue
                if not any(fnmatch.fnmatch(target.stem, pattern) for pattern in options.only):
                    continue
                print(target.stem, file=sys.stderr, flush=True)
                try:
                    if not (source / "config.json").exists():
                        write_source(name, source)
                    write(name, form, source, target)
                except Exception as error:  # noqa: BLE001 - the builder raises anything
                    target.unlink(missing_ok=True)
                    reason = f"{type(error).__name__}: {error}"[:800]
                    target.with_suffix(".failed").write_text(reason, encoding="utf-8")
        finally:
            shutil.rmtree(source, ignore_errors=True)


if __name__ == "__main__":
    main()
