"""The kernel language: formulas over tensors, and NumPy evaluation of them. Knows no backend."""
