"""PyInstaller hook: adds gameglue's modules, which are imported by name; not the optional inspector."""

from PyInstaller.utils.hooks import collect_submodules

hiddenimports = collect_submodules(
    "gameglue", filter=lambda name: not name.startswith(("gameglue.inspector", "gameglue.shipping.hooks"))
)
module_collection_mode = {"gameglue": "pyz+py"}
