"""PyInstaller: moderngl loads its core by name, and glcontext one module for each way to a context."""

from PyInstaller.utils.hooks import collect_submodules

hiddenimports = [*collect_submodules("glcontext"), *collect_submodules("moderngl")]
