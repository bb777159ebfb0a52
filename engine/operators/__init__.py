"""Operators: one module per family, one definition per operator, for every backend.

Those of ONNX lie here, those of other domains in `ml` (ai.onnx.ml) and `contrib` (com.microsoft).

To add one, write a function under `@operator(...)` in the module of its family; nothing else is needed.
"""

from __future__ import annotations

import importlib
import pkgutil

from engine.operators.registry import OPERATORS as OPERATORS
from engine.operators.registry import Operator as Operator
from engine.operators.registry import operator as operator

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
