"""PyInstaller hook: adds moderngl's core and glcontext's platform modules, imported by name."""

from PyInstaller.utils.hooks import collect_submodules

hiddenimports = [*collect_submodules("glcontext"), *collect_submodules("moderngl")]
