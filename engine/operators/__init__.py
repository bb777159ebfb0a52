"""Operators: one module per family, one definition per operator, for every backend.

To add one, write a function under `@operator(...)` in the module of its family; nothing else is needed.
"""

from __future__ import annotations

import importlib
import pkgutil

from engine.operators.registry import OPERATORS as OPERATORS
from engine.operators.registry import Operator as Operator
from engine.operators.registry import operator as operator

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
