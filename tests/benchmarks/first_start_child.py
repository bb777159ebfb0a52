"""One process of `tests.benchmarks.first_start`; imports nothing of the tests.

python -P first_start_child.py {onnxruntime|gameglue} MODEL INPUTS.npz
"""

import hashlib
import json
import os
import sys
from time import perf_counter

import numpy as np

runner, path, given = sys.argv[1:]
with np.load(given) as file:
    inputs = {name: file[name] for name in file.files}
marks = [perf_counter()]
counts = {}
if runner == "onnxruntime":
    import onnxruntime

    marks += [perf_counter()] * 2
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    marks.append(perf_counter())
    results = session.run(None, inputs)
else:
    from engine import ModelLoader, Worker
    from engine.device.native import process_store

    marks.append(perf_counter())
    model = ModelLoader.load(path)
    marks.append(perf_counter())
    worker = Worker(model)
    marks.append(perf_counter())
    counts["before ready"] = process_store().compilations
    worker.schedule(inputs)
    results = [worker.peek_output(output.name).download_to_array() for output in model.outputs]
    counts["after ready"] = process_store().compilations - counts["before ready"]
marks.append(perf_counter())
steps = dict(zip(("import", "model", "worker", "first result"), np.diff(marks).tolist(), strict=True))
digest = hashlib.sha256(b"".join(np.ascontiguousarray(result).tobytes() for result in results)).hexdigest()
print(json.dumps({**steps, **counts, "digest": digest}), flush=True)
os._exit(0)
