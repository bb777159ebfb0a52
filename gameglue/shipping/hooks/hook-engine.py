"""PyInstaller hook: adds the engine with its sources, from whose hash kernels are cached."""

from PyInstaller.utils.hooks import collect_data_files, collect_submodules, copy_metadata

# Families of operators and device modules are found by walking the packages.
hiddenimports = collect_submodules("engine")
module_collection_mode = {"engine": "pyz+py"}
# Versions are part of the keys that compiled code is stored under.
datas = [*copy_metadata("numba"), *copy_metadata("llvmlite")]
# Kernels that an installed wheel brings along; a source tree has none.
datas += collect_data_files("engine", includes=["device/native/objects/*"])
