"""Stable radix sort on CPUs: a work-item per block, byte by byte from the least significant."""

from __future__ import annotations

from engine.backends.gpu.kernel_dialect import Text

SORTED_ALONE = 1 << 12
"""Elements of a block. A merge of two takes as long as sorting both at once."""

# So many elements are ranked by comparing all with all, 16 at a time: sorting by digits takes longer.
_FEW = 128

_HEAD = [
    "typedef int16 loose_int16 __attribute__((aligned(4)));",
    f"#define LANES (int16)({', '.join(map(str, range(16)))})",
]


def sort_statements(length: str, read: Text, place: Text, is_last: bool) -> tuple[list[str], list[str]]:
    """Functions, and the statements that sort a block of a row; see `KernelDialect.sorted_block`."""
    own = place("from + e", "start + e")

    def stored(slot: str, key: str, found: str) -> str:
        if is_last:
            return f"y[row * keep + {slot}] = {found};"
        return f"y[2 * (from + {slot})] = {key}; y[2 * (from + {slot}) + 1] = {found};"

    rest = "for (int e = max(most, 0); e < keep; ++e) y[row * keep + e] = 0;" if is_last else ""
    text = f"""\
if (t >= segments) return;
const int row = t / blocks, start = (t - row * blocks) * span, from = row * count + start;
const int here = min({length} - start, span), most = min(here, keep);
{rest}
int keys[{2 * SORTED_ALONE}];
if (here <= {_FEW}) {{
    for (int e = 0; e < here; ++e) {read("keys[e]", "from + e")}
    for (int first = 0; first < here; first += 16) {{
        const int16 own = *(loose_int16*)(keys + first), at = first + LANES;
        const int end = min(first + 16, here);
        int16 rank = 0;
        for (int e = 0; e < first; ++e) rank -= keys[e] <= own;
        for (int e = first; e < end; ++e) rank -= (keys[e] < own) | ((keys[e] == own) & (e < at));
        for (int e = end; e < here; ++e) rank -= keys[e] < own;
        int ranks[16];
        *(loose_int16*)ranks = rank;
        for (int e = first; e < end; ++e) {{
            const int to = ranks[e - first];
            if (to < most) {{ {stored("to", "keys[e]", own)} }}
        }}
    }}
    return;
}}
int places[{2 * SORTED_ALONE}], starts[1024];
for (int digit = 0; digit < 1024; ++digit) starts[digit] = 0;
for (int e = 0; e < here; ++e) {{
    {read("keys[e]", "from + e")}
    const uint key = as_uint(keys[e]) ^ 0x80000000u;
    keys[e] = as_int(key);
    places[e] = {own};
    for (int k = 0; k < 4; ++k) ++starts[256 * k + (key >> 8 * k & 255u)];
}}
int half_ = 0;
for (int k = 0; k < 4; ++k) {{
    int* ends = starts + 256 * k;
    // A byte that all have in common moves none.
    if (ends[as_uint(keys[half_]) >> 8 * k & 255u] == here) continue;
    for (int digit = 0, total = 0; digit < 256; ++digit) {{
        const int number = ends[digit];
        ends[digit] = total;
        total += number;
    }}
    for (int e = half_; e < half_ + here; ++e) {{
        const int to = {SORTED_ALONE} - half_ + ends[as_uint(keys[e]) >> 8 * k & 255u]++;
        keys[to] = keys[e];
        places[to] = places[e];
    }}
    half_ = {SORTED_ALONE} - half_;
}}
for (int e = 0; e < most; ++e) {{
    {stored("e", "as_int(as_uint(keys[half_ + e]) ^ 0x80000000u)", "places[half_ + e]")}
}}
"""
    return _HEAD, text.splitlines()
