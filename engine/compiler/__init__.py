"""From a Model to a Plan: passes over layers, formulas for given shapes, fusion, memory."""
