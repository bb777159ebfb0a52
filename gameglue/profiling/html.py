"""HTML profile report: plots and tables in one file, without network access, light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np

from engine.runtime.memory_report import megabytes
from gameglue.profiling.plots import curve, histogram, share_bar, stacked
from gameglue.profiling.report import Spread
from gameglue.profiling.session import PAUSED, RUNNING, Profile
from gameglue.profiling.style import SCRIPT, STYLE

_PHASES = 7
_ROWS = 24


def write_html(profile: Profile, path: str | Path) -> Path:
    """Write the report; makes the folder."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(html_report(profile), encoding="utf-8")
    return target


def html_report(profile: Profile) -> str:
    """The report as HTML text."""
    sections = [
        _tiles(profile),
        _section("Not a number", _alarms(profile)),
        _section("Frame times", _frame_plot(profile)),
        _section("How often each frame time was", _histogram(profile)),
        _section("Where the frame's time goes", _phases(profile)),
        _section("Drawn by the GPU", _drawn(profile)),
        _section("Hooks", _hooks(profile)),
        _section("Workers", _workers(profile)),
        *(_section(f"Layers of {label}", _layers(profile, label)) for label in profile.layers),
        _section("Memory", _memory(profile)),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(profile.title)}: profile</title><style>{STYLE}</style></head><body><main>"
        f"<h1>{escape(profile.title)}</h1>{_summary(profile)}{''.join(sections)}"
        f"</main><script>{SCRIPT}</script></body></html>\n"
    )


def _section(heading: str, content: str) -> str:
    return f"<section><h2>{escape(heading)}</h2>{content}</section>" if content else ""


def _summary(profile: Profile) -> str:
    shown = ("renderer", "picture", "backend", "in flight")
    parts = [f"{name} {profile.metadata[name]}" for name in shown if name in profile.metadata]
    pace = f"{profile.rate:.0f} frames a second" if profile.rate else "no pause between frames"
    line = f'<p class="muted">{escape(" · ".join([f"{len(profile.work)} frames", pace, *parts]))}</p>'
    return line + (f"<p>{escape(profile.limit)}</p>" if profile.limit else "")


def _tiles(profile: Profile) -> str:
    work = Spread.of(profile.work)
    tiles = [
        ("median", f"{work.median:.2f}", "ms"),
        ("p95", f"{work.p95:.2f}", "ms"),
        ("p99", f"{work.p99:.2f}", "ms"),
        ("longest", f"{work.max:.2f}", "ms"),
    ]
    if all(len(profile.sides.get(side, ())) for side in (RUNNING, PAUSED)):
        both = f"{profile.spread(RUNNING).p99:.2f} − {profile.spread(PAUSED).p99:.2f}"
        noise = "" if profile.noise_p99 is None else f", ±{profile.noise_p99:.2f}"
        tiles.append(("inference adds to p99", f"{profile.difference_p99:+.2f}", f"ms = {both}{noise}"))
    if profile.counted:
        tiles.append(("blocking calls", str(profile.blocking_calls), ""))
    made = "".join(
        f'<div class="tile"><div class="muted">{escape(name)}</div>'
        f'<div class="number">{value}<small> {unit}</small></div></div>'
        for name, value, unit in tiles
    )
    return f'<div class="tiles">{made}</div>'


def _alarms(profile: Profile) -> str:
    found = profile.recording.nan_alarm.found.values()
    return "".join(f'<p class="bad">{escape(str(bad))}</p>' for bad in found)


def _frame_plot(profile: Profile) -> str:
    frames = list(profile.recording.frames)
    bands = _stretches([frame.label == PAUSED for frame in frames])
    tips = []
    for frame in frames:
        dearest = sorted(frame.phases.items(), key=lambda item: -item[1])[:3]
        parts = ", ".join(f"{name} {seconds * 1e3:.2f}" for name, seconds in dearest)
        side = f", {frame.label}" if frame.label else ""
        tips.append(f"frame {frame.number}: {frame.seconds * 1e3:.2f} ms{side} ({parts})")
    legend = (
        '<p class="muted legend"><span><i class="band-key"></i>inference paused</span></p>' if bands else ""
    )
    return curve(profile.work * 1e3, _budget(profile), bands, tips) + legend


def _stretches(flags: Sequence[bool]) -> list[tuple[int, int]]:
    """First and last places of each run of true ones."""
    edges = np.flatnonzero(np.diff(np.array([False, *flags, False]).astype(int)))
    return [(int(first), int(end) - 1) for first, end in edges.reshape(-1, 2)]


def _budget(profile: Profile) -> float | None:
    return 1e3 / profile.rate if profile.rate else None


def _histogram(profile: Profile) -> str:
    sides = [
        (side, style, profile.sides.get(side, np.zeros(0)) * 1e3)
        for side, style in ((PAUSED, "side-b"), (RUNNING, "side-a"))
    ]
    legend = _legend([(RUNNING, "side-a"), (PAUSED, "side-b")])
    return histogram(sides, _budget(profile)) + legend


def _legend(items: Sequence[tuple[str, str]]) -> str:
    parts = "".join(f'<span><i class="{style}"></i>{escape(name)}</span>' for name, style in items)
    return f'<p class="legend muted">{parts}</p>'


def _phases(profile: Profile) -> str:
    recording = profile.recording
    names = recording.names("phases")
    shown, rest = names[:_PHASES], names[_PHASES:]
    series = [(name, f"c{i}", recording.times("phases", name) * 1e3) for i, name in enumerate(shown)]
    if rest:
        together = np.sum([recording.times("phases", name) for name in rest], axis=0) * 1e3
        series.append((f"{len(rest)} others", "c7", together))
    legend = _legend([(name, style) for name, style, _ in series])
    return stacked(series) + legend + _times_table(profile, "phases", "phase")


def _hooks(profile: Profile) -> str:
    return _times_table(profile, "hooks", "component and hook")


def _times_table(profile: Profile, kind: str, heading: str) -> str:
    names = profile.recording.names(kind)[:_ROWS]
    if not names:
        return ""
    return _spreads(heading, [(n, Spread.of(profile.recording.times(kind, n))) for n in names])


def _drawn(profile: Profile) -> str:
    rings = profile.recording.gpu_phases
    return _spreads("phase", [(name, Spread.of(ring.latest())) for name, ring in rings.items()])


def _spreads(heading: str, spreads: Sequence[tuple[str, Spread]]) -> str:
    if not spreads:
        return ""
    most = max(spread.mean for _, spread in spreads) or 1.0
    rows = [
        [_code(name), *_numbers(s.mean, s.median, s.p95, s.p99, s.max), _meter(s.mean / most)]
        for name, s in spreads
    ]
    return _table([heading, "mean ms", "p50", "p95", "p99", "longest", ""], rows)


def _workers(profile: Profile) -> str:
    rows = []
    for times in profile.workers:
        values = (times.calling_ms, times.per_schedule_ms("job"), times.per_schedule_ms("commands"))
        cells = [_optional(value) for value in (*values, times.mean_ms("readback"))]
        rows.append([_code(times.label), str(times.schedules), *cells])
    if not rows:
        return '<p class="muted">No worker did anything.</p>'
    head = ["worker", "schedules", "main thread ms", "job threads ms", "GPU ms", "answer after ms"]
    return _table(head, rows)


def _layers(profile: Profile, label: str) -> str:
    layers = sorted(profile.layers[label], key=lambda item: -item.seconds)
    on_cpu = profile.layers_on_cpu.get(label, {})
    is_cpu = label.rpartition(" on ")[2].startswith("cpu")
    most = max((item.seconds for item in layers), default=0.0) or 1.0
    rows = []
    for item in layers[:_ROWS]:
        shape = " × ".join(map(str, item.shape)) if item.shape is not None else ""
        cpu = item.seconds if is_cpu else on_cpu.get(item.layer)
        cells = [_optional(None if cpu is None else cpu * 1e3)]
        cells += [] if is_cpu else [_optional(item.seconds * 1e3)]
        named = [_code(item.layer), escape(item.op_type), shape, escape("+".join(item.kernels))]
        rows.append([*named, *cells, _meter(item.seconds / most)])
    head = ["layer", "operator", "output", "kernels", "CPU ms", *([] if is_cpu else ["GPU ms"]), ""]
    left = len(layers) - len(rows)
    more = f'<p class="muted">and {left} layers that take less</p>' if left > 0 else ""
    return _table(head, rows, text=4) + more


def _memory(profile: Profile) -> str:
    rows = []
    for label, memory in profile.memory.items():
        kinds = (("weights", "c0"), ("temporaries", "c1"), ("tensors", "c2"))
        shares = [
            (f"{kind} {megabytes(size)}", style, float(size))
            for kind, style in kinds
            if (size := getattr(memory, f"host_{kind}") + getattr(memory, f"device_{kind}"))
        ]
        cells = [megabytes(n) for n in (memory.host, memory.device)]
        rows.append([_code(label), *cells, share_bar(shares)])
    if not rows:
        return ""
    legend = _legend([("weights", "c0"), ("temporaries", "c1"), ("inputs and outputs", "c2")])
    return _table(["worker", "host", "device", ""], rows) + legend


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], text: int = 1) -> str:
    """`text`: how many columns, from the left, hold words; numbers stand on the right."""

    def cells(tag: str, values: Sequence[str]) -> str:
        styles = ("" if i < text else ' class="n"' for i in range(len(values)))
        made = (f"<{tag}{style}>{value}</{tag}>" for style, value in zip(styles, values, strict=True))
        return f"<tr>{''.join(made)}</tr>"

    body = "".join(cells("td", row) for row in rows)
    return f'<div class="wide"><table><thead>{cells("th", head)}</thead><tbody>{body}</tbody></table></div>'


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"


def _numbers(*values: float) -> list[str]:
    return [f"{value:.3f}" for value in values]


def _optional(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _meter(share: float) -> str:
    return f'<span class="meter"><span style="width:{share * 100:.1f}%"></span></span>'
