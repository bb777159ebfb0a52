"""PyInstaller: the game side. It is imported name by name, but for what optional packages are needed for."""

from PyInstaller.utils.hooks import collect_submodules

hiddenimports = collect_submodules(
    "gameglue", filter=lambda name: not name.startswith(("gameglue.inspector", "gameglue.shipping.hooks"))
)
module_collection_mode = {"gameglue": "pyz+py"}
