"""Times of a model's nodes on onnxruntime, from its own profile."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

_EVENT = "_kernel_time"
_RUN = "model_run"
_ADDED = re.compile(r"(_nchwc|_bn|_mul|_token_\d+|/\w*Fusion\w*)$")


@dataclass(frozen=True)
class OrtNode:
    """A node of onnxruntime's optimized graph.

    names: what it may be known by, its outputs first, then its own name and what that begins with.
    seconds: for each run what it took, without the nodes of subgraphs that it has run.
    """

    name: str
    op_type: str
    names: tuple[str, ...]
    seconds: tuple[float, ...]


class OrtProfile:
    """An onnxruntime CPU session that records kernel times.

    Runs once to begin with; that run is not in the profile.

    Raises `ImportError` where onnxruntime is not installed, and exceptions of its own, which have no common
    class.
    """

    def __init__(self, proto: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> None:
        """proto: the model with its weights inside. Its nodes are given names by what they yield."""
        import onnxruntime  # optional

        self.proto = proto
        named = onnx.ModelProto()
        named.CopyFrom(proto)
        for node in all_nodes(named.graph):
            # Some optimisations name a node by the value that it yields, others keep its name.
            node.name = next((name for name in node.output if name), node.name)
        self._folder = tempfile.TemporaryDirectory(prefix="gameglue-profile-")
        folder = Path(self._folder.name)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.enable_profiling = True
        options.profile_file_prefix = str(folder / "profile")
        options.optimized_model_filepath = str(folder / "optimised.onnx")
        self._session = onnxruntime.InferenceSession(
            named.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self._graph = onnx.load(folder / "optimised.onnx", load_external_data=False).graph
        self._inputs = dict(inputs)
        self.run()

    def run(self) -> None:
        """Run once."""
        self._session.run(None, self._inputs)

    def finish(self) -> list[OrtNode]:
        """The nodes in the order of their first run; ends the profile."""
        events = json.loads(Path(self._session.end_profiling()).read_text(encoding="utf-8"))
        self._folder.cleanup()
        outputs = {node.name: tuple(node.output) for node in all_nodes(self._graph) if node.name}
        taken: dict[tuple[str, str], list[float]] = {}
        runs = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["name"] == _RUN)
        for event, own in _own_times(e for e in events if e.get("cat") == "Node" and _EVENT in e["name"]):
            number = next((i for i, (a, b) in enumerate(runs) if a <= event["ts"] <= b), None)
            if number is not None:
                key = (event["name"].removesuffix(_EVENT), event["args"].get("op_name", ""))
                taken.setdefault(key, [0.0] * len(runs))[number] += own * 1e-6
        return [
            OrtNode(name, op_type, (*outputs.get(name, ()), *known_names(name)), tuple(seconds[1:]))
            for (name, op_type), seconds in taken.items()
        ]


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """All nodes; those of subgraphs follow the node that holds them."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from all_nodes(body)


def known_names(name: str) -> Iterator[str]:
    """The name, and the name without the suffixes that onnxruntime adds."""
    yield name
    while (rest := _ADDED.sub("", name)) != name:
        yield rest
        name = rest


def _own_times(events: Iterator[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], int]]:
    """Each event with its microseconds, without those of the events within it."""
    stack: list[tuple[dict[str, Any], int]] = []
    for event in sorted(events, key=lambda e: (e["tid"], e["ts"], -e["dur"])):
        while stack and not _within(event, stack[-1][0]):
            yield stack.pop()
        if stack:
            outer, own = stack.pop()
            stack.append((outer, own - event["dur"]))
        stack.append((event, event["dur"]))
    yield from reversed(stack)


def _within(event: Mapping[str, Any], outer: Mapping[str, Any]) -> bool:
    """Whether an event is inside another one that runs subgraphs."""
    if outer["args"].get("op_name") not in ("If", "Loop", "Scan"):
        return False
    return bool(event["tid"] == outer["tid"] and event["ts"] + event["dur"] <= outer["ts"] + outer["dur"])
