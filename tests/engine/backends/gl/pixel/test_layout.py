"""Where texels lie, and that no shape brings a texture of another kind."""

from __future__ import annotations

import pytest

from engine.backends.gl.pixel.layout import TexelLayout, capacity, texels_of

SIZES = [1, 2, 7, 8, 9, 63, 64, 100, 1000, 1024, 4096, 8191, 8192, 10_000, 65_536, 300_000, 1_000_000]


@pytest.mark.parametrize("limit", [1024, 2048, 16384])
@pytest.mark.parametrize("layers", [False, True])
def test_every_texel_has_a_place_of_its_own(limit: int, layers: bool) -> None:
    for texels in SIZES:
        layout = TexelLayout.of(texels, limit, layers)
        assert layout.width <= limit
        assert layout.height <= limit
        assert layout.texels >= texels
        columns, rows = layout.area(texels)
        last = texels - 1
        if layers:
            x, y = last // 4 % layout.width, last // 4 // layout.width * 4 + last % 4
        else:
            x, y = last % layout.width, last // layout.width
        assert x < columns <= layout.width
        assert y < rows <= layout.height


def test_heights_are_no_powers_of_two() -> None:
    for texels in range(1, 20_000, 37):
        for layers in (False, True):
            height = TexelLayout.of(texels, 16384, layers).height
            assert height & (height - 1)


def test_a_texture_around_others_holds_each() -> None:
    layouts = [TexelLayout.of(n, 16384) for n in (3, 500, 40_000)]
    around = TexelLayout.around(layouts)
    assert all(x.width <= around.width and x.height <= around.height for x in layouts)
    assert around.height & (around.height - 1)


def test_capacity_is_reached() -> None:
    assert capacity(1024) == 1 << 20
    assert TexelLayout.of(1 << 20, 1024) == TexelLayout(10, 1024)
    with pytest.raises(ValueError, match="1024x1024"):
        TexelLayout.of((1 << 20) + 1, 1024)
    assert texels_of(0) == 1
    assert texels_of(5) == 2
