"""Stable sorting on a processor: a work-item for each block, by bytes from the last on."""

from __future__ import annotations

from collections.abc import Callable

from engine.backends.gpu.sorts import BLOCK

# So many elements are ranked by comparing all with all, 16 at a time: sorting by digits takes longer.
_FEW = 128

SORT_HEAD = f"""\
typedef int16 loose16 __attribute__((aligned(4)));
#define LANES (int16)({", ".join(map(str, range(16)))})
"""
"""What `sort_statements` need before the function."""


def sort_statements(length: str, read: Callable[[str, str], str]) -> str:
    """Statements that sort a block of a row of so many elements, as `engine.backends.gpu.sorts` has it.

    read: prints the statement that sets a variable to the key at a position.
    """
    return f"""\
    const int t = f0 + (int)get_global_id(0);
    if (t >= segments) return;
    const int row = t / blocks, start = (t - row * blocks) * span, from = row * count + start;
    const int here = min({length} - start, span), most = min(here, keep);
    int keys[{2 * BLOCK}];
    if (here <= {_FEW}) {{
        for (int e = 0; e < here; ++e) {read("keys[e]", "from + e")}
        for (int first = 0; first < here; first += 16) {{
            const int16 own = *(loose16*)(keys + first), at = first + LANES;
            const int end = min(first + 16, here);
            int16 rank = 0;
            for (int e = 0; e < first; ++e) rank -= keys[e] <= own;
            for (int e = first; e < end; ++e) rank -= (keys[e] < own) | ((keys[e] == own) & (e < at));
            for (int e = end; e < here; ++e) rank -= keys[e] < own;
            int ranks[16];
            *(loose16*)ranks = rank;
            for (int e = first; e < end; ++e) {{
                const int to = 2 * (from + ranks[e - first]);
                if (ranks[e - first] >= most) continue;
                y[to] = keys[e];
                y[to + 1] = start + e;
            }}
        }}
        return;
    }}
    int places[{2 * BLOCK}], starts[1024];
    for (int digit = 0; digit < 1024; ++digit) starts[digit] = 0;
    for (int e = 0; e < here; ++e) {{
        {read("keys[e]", "from + e")}
        const uint key = as_uint(keys[e]) ^ 0x80000000u;
        keys[e] = as_int(key);
        places[e] = start + e;
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
            const int to = {BLOCK} - half_ + ends[as_uint(keys[e]) >> 8 * k & 255u]++;
            keys[to] = keys[e];
            places[to] = places[e];
        }}
        half_ = {BLOCK} - half_;
    }}
    for (int e = 0; e < most; ++e) {{
        y[2 * (from + e)] = as_int(as_uint(keys[half_ + e]) ^ 0x80000000u);
        y[2 * (from + e) + 1] = places[half_ + e];
    }}
"""
