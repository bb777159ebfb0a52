"""Draw the phases of a frame, in the order that an app has them: python docs/pictures/frame.py."""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

from gameglue import App

TARGET = Path(__file__).resolve().parents[1] / "pages" / "images" / "frame.svg"

CALLS = {
    "input": ("self.input", "on_application_focus", "on_application_pause"),
    "poll": ("loading", "inference results", "hot reload"),
    "wake": ("awake", "on_enable", "start"),
    "fixed_update": ("fixed_update", "WaitForFixedUpdate"),
    "update": ("update",),
    "coroutines": ("yield and await", "invoke, invoke_repeating"),
    "late_update": ("late_update",),
    "draw": ("cameras", "Renderer.draw"),
    "render_image": ("on_render_image",),
    "gui": ("on_gui", "overlay, inspector"),
    "inference": ("submits within frame_budget_ms",),
    "present": ("window", "screenshots"),
    "end_of_frame": ("WaitForEndOfFrame", "on_disable", "on_destroy", "scene changes"),
}
"""By phase, what it calls or does."""

GROUPS = {
    "input": "#4c8dff", "poll": "#4c8dff", "wake": "#4c8dff",
    "fixed_update": "#5bd69a", "update": "#5bd69a", "coroutines": "#5bd69a", "late_update": "#5bd69a",
    "draw": "#ffb454", "render_image": "#ffb454", "gui": "#ffb454",
    "inference": "#a078ff", "present": "#ff7eb6", "end_of_frame": "#ff7eb6",
}  # fmt: skip

WIDTH, ROW, TOP, LEFT = 720, 40, 16, 52


def drawing() -> str:
    """The SVG document. Raises `ValueError` if an app's frame has other phases, or another order."""
    phases = list(CALLS)
    with App("frame", headless=True) as app:
        # Where the processor draws, inference comes before the drawing.
        found = [name for name in app.frame.names if name != "inference"]
    if found != [name for name in phases if name != "inference"]:
        raise ValueError(f"the frame has the phases {found}; change CALLS and the page life-cycle.md")
    height = 2 * TOP + ROW * len(phases)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="ui-sans-serif, system-ui, sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" rx="12" fill="#12151c"/>',
    ]
    for row, name in enumerate(phases):
        y = TOP + ROW * row
        color = GROUPS[name]
        parts += [
            f'<rect x="{LEFT}" y="{y + 4}" width="170" height="{ROW - 8}" rx="6" fill="{color}"/>',
            f'<text x="{LEFT + 85}" y="{y + ROW / 2 + 5}" text-anchor="middle" font-size="15" '
            f'font-weight="600" fill="#12151c">{name}</text>',
            f'<text x="{LEFT + 192}" y="{y + ROW / 2 + 5}" font-size="14" fill="#e8ecf3">'
            f"{escape('   ·   '.join(CALLS[name]))}</text>",
        ]
    # The way back to the first phase.
    first, last = TOP + ROW / 2, TOP + ROW * (len(phases) - 0.5)
    parts += [
        f'<path d="M {LEFT - 4} {last} H 24 V {first} H {LEFT - 12}" fill="none" stroke="#8f9ab0" '
        'stroke-width="2"/>',
        f'<path d="M {LEFT - 4} {first} l -10 -5 v 10 z" fill="#8f9ab0"/>',
        f'<text transform="translate(16 {(first + last) / 2}) rotate(-90)" text-anchor="middle" '
        'font-size="12" fill="#8f9ab0">next frame</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    TARGET.write_text(drawing(), encoding="utf-8")
    print(f"{TARGET}: {TARGET.stat().st_size} bytes")
