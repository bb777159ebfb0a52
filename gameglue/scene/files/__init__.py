"""Scene and prefab files: YAML, validated against the classes that they name.

`text` is YAML without its traps and with line numbers, `kinds` finds component classes by name, `values`
turns fields into text and back, `reading` makes objects, `saving` writes them, `prefabs` keeps templates,
`loading` reads over many frames.

YAML, as scenes are trees with objects inside objects, `null` and comments, and as its parser reports lines:
TOML has no `null` and needs a header with a full path for every level, JSON has no comments.
"""

from __future__ import annotations
