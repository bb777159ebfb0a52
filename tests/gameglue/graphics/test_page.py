"""A page fitted into windows of other sizes, against the pixels that it must cover."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gameglue import App, GraphicsError, MonoBehaviour, Page, Rect, with_alpha

MakeApp = Callable[..., App]
Draw = Callable[[Page], None]


class Sheet(MonoBehaviour):
    draw: Draw
    fill: bool = False

    def on_gui(self) -> None:
        page = Page(self.app.gui, 96, 64, fill=self.fill)
        page.rect(0, 0, page.width, page.height, "#000000")
        self.draw(page)


def pixels(make_drawing_app: MakeApp, size: tuple[int, int], draw: Draw, *, fill: bool = False) -> np.ndarray:
    """What is on the screen after a frame: (height, width, 3)."""
    app = make_drawing_app(size=size)
    app.scene.create("sheet").add_component(Sheet, draw=draw, fill=fill)
    app.run(frames=2)
    return app.graphics.read_pixels()[..., :3]


def bounds(picture: np.ndarray, channel: int) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of the pixels in which one channel alone shines."""
    others = [c for c in range(3) if c != channel]
    rows, columns = np.nonzero((picture[..., channel] > 200) & (picture[..., others] < 60).all(axis=2))
    return int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1


def square(page: Page) -> None:
    page.rect(page.width - 10, page.height - 20, 10, 20, "#00ff00")


@pytest.mark.gl
@pytest.mark.parametrize(
    ("size", "corner"),
    [((96, 64), (96, 64)), ((192, 128), (192, 128)), ((292, 128), (242, 128)), ((192, 228), (192, 178))],
)
def test_a_page_is_scaled_into_the_middle(
    make_drawing_app: MakeApp, size: tuple[int, int], corner: tuple[int, int]
) -> None:
    unit = min(size[0] / 96, size[1] / 64)
    found = bounds(pixels(make_drawing_app, size, square), 1)
    assert found == (corner[0] - 10 * unit, corner[1] - 20 * unit, *corner)


@pytest.mark.gl
def test_a_page_that_fills_reaches_the_windows_corner(make_drawing_app: MakeApp) -> None:
    assert bounds(pixels(make_drawing_app, (292, 128), square, fill=True), 1) == (272, 88, 292, 128)


@pytest.mark.gl
def test_shapes_and_bars_lie_where_they_are_told(make_drawing_app: MakeApp) -> None:
    def draw(page: Page) -> None:
        page.circle(20, 20, 10, "#00ff00")
        page.polyline([(50, 10), (70, 10)], "#ff0000", width=4)
        page.progress_bar(10, 40, 40, 6, 0.5, "#0000ff", "#202020")

    picture = pixels(make_drawing_app, (192, 128), draw)
    assert bounds(picture, 1) == pytest.approx((20, 20, 60, 60), abs=1)
    assert bounds(picture, 0) == pytest.approx((96, 16, 144, 24), abs=1)
    assert bounds(picture, 2) == pytest.approx((20, 80, 60, 92), abs=1)


@pytest.mark.gl
def test_many_discs_lie_where_they_are_told(make_drawing_app: MakeApp) -> None:
    def draw(page: Page) -> None:
        page.circles([(20, 20)], 10, "#00ff00")
        page.circles(np.array([(60, 40), (70, 40)]), np.array((6.0, 4.0)), np.array([(1, 0, 0), (1, 0, 0)]))

    picture = pixels(make_drawing_app, (192, 128), draw)
    assert bounds(picture, 1) == pytest.approx((20, 20, 60, 60), abs=1)
    assert bounds(picture, 0) == pytest.approx((108, 68, 148, 92), abs=1)


@pytest.mark.gl
@pytest.mark.parametrize("scale", [1, 2])
def test_a_line_glows_alike_however_many_points_it_has(make_drawing_app: MakeApp, scale: int) -> None:
    def light(points: int) -> np.ndarray:
        def draw(page: Page) -> None:
            places = np.column_stack((np.linspace(-20, 116, points), np.full(points, 32)))
            page.polyline(places, "#ffffff", width=4, glow=16, strength=0.99)

        return pixels(make_drawing_app, (96 * scale, 64 * scale), draw)[:, 48 * scale, 0].astype(int)

    once, often = light(2), light(137)
    assert np.abs(once - often)[np.abs(np.arange(64 * scale) - 32 * scale) > 3 * scale].max() < 25
    for column in (once, often):
        assert column[32 * scale] > 250
        beside = column[35 * scale : 49 * scale]
        assert 60 < beside[0] < 180, "beside the line it is weaker than the line"
        assert (np.diff(beside) <= 0).all()
        assert column[52 * scale] == 0


@pytest.mark.gl
def test_a_trail_fades_and_a_colour_does(make_drawing_app: MakeApp) -> None:
    def draw(page: Page) -> None:
        page.polyline([(10, 20), (40, 20), (80, 20)], "#00ff00", width=8, strength=np.array((1.0, 0.25)))
        page.rect(10, 40, 20, 10, with_alpha("#0000ff80", 0.5))

    picture = pixels(make_drawing_app, (96, 64), draw)
    assert picture[20, 20, 1] == 255
    assert picture[20, 60, 1] == pytest.approx(64, abs=2)
    assert picture[45, 20, 2] == pytest.approx(64, abs=2)


@pytest.mark.gl
def test_pictures_lie_where_they_are_told(make_drawing_app: MakeApp) -> None:
    def draw(page: Page) -> None:
        white = page_app.graphics.white
        page.sprites(white, [(10, 10), (30, 10)], np.array((4.0, 8.0)), "#ff0000")
        page.image(white, 50, 30, 20, 10)

    page_app = make_drawing_app(size=(192, 128))
    page_app.scene.create("sheet").add_component(Sheet, draw=draw)
    page_app.run(frames=2)
    picture = page_app.graphics.read_pixels()[..., :3]
    assert bounds(picture, 0) == (16, 12, 68, 28)
    rows, columns = np.nonzero((picture > 200).all(axis=2))
    assert (columns.min(), rows.min(), columns.max(), rows.max()) == (100, 60, 139, 79)


@pytest.mark.gl
def test_a_table_of_colours_lies_in_the_middle_at_the_top(make_drawing_app: MakeApp) -> None:
    colors = np.zeros((2, 4, 3))
    colors[0, 0] = colors[1, 3] = (0, 1, 0)
    colors[0, 3] = (1, 0, 0)

    def draw(page: Page) -> None:
        page.cells(10, 10, 60, 20, colors)  # cells of 10, so 40 wide

    picture = pixels(make_drawing_app, (192, 128), draw)
    assert bounds(picture, 1) == pytest.approx((40, 20, 120, 60), abs=1)
    assert bounds(picture, 0) == pytest.approx((100, 20, 120, 40), abs=1)


@pytest.mark.gl
def test_text_is_aligned_and_scaled(make_drawing_app: MakeApp) -> None:
    widths = []

    def draw(page: Page) -> None:
        widths.append(page.text("MMM", 90, 16, 16, "#00ff00", "right"))
        widths.append(page.measure("MMM", 16)[0])

    left, top, right, bottom = bounds(pixels(make_drawing_app, (192, 128), draw), 1)
    assert widths[0] == widths[1]
    assert 2 * 90 - 8 <= right <= 2 * 90
    assert (right - left) / 2 == pytest.approx(widths[0], abs=4)
    assert (top + bottom) / 2 == pytest.approx(2 * 16, abs=5)


@pytest.mark.gl
def test_the_parts_of_a_page_follow_each_other(make_drawing_app: MakeApp) -> None:
    app = make_drawing_app(size=(480, 320))
    page, calls = Page(app.gui), []

    def record(text: str, x: float, y: float, *args: object, **named: object) -> float:
        calls.append((text, x, y))
        return 10.0 * len(text)

    page.text = record  # type: ignore[method-assign]
    room = page.card(100, 50, 200, 100, "title", "value")
    assert room == Rect(116, 88, 168, 48)
    assert [call[0] for call in calls] == ["title", "value"]
    calls.clear()
    page.rows(room.x, room.y, room.width, {"a": "1", "b": "2"}, step=20)
    assert calls == [("a", 116, 88), ("1", 284, 88), ("b", 116, 108), ("2", 284, 108)]
    calls.clear()
    page.keys({"N": "new game", "Esc": "quit"})
    assert [call[0] for call in calls] == ["N", "new game", "Esc", "quit"]
    assert [call[1] for call in calls] == sorted(call[1] for call in calls)
    assert {call[2] for call in calls} == {619.5}
    calls.clear()
    page.heading("name", "what it is", "note")
    assert calls[0][1] + 40 < calls[1][1] < calls[2][1] == 938


@pytest.mark.gl
def test_a_button_is_a_plate_with_its_text_and_note(make_drawing_app: MakeApp) -> None:
    def draw(page: Page) -> None:
        page.button(10, 10, 40, 30, "H", "i", highlighted=True)
        page.button(50, 10, 40, 30, "H")

    picture = pixels(make_drawing_app, (192, 128), draw).astype(int)
    lit, plain = picture[20:80, 20:100], picture[20:80, 100:180]
    assert lit[10, 6].tolist() == [76, 194, 255]  # Palette.ACCENT
    assert plain[10, 6].max() < 80
    for plate, parts in ((lit, 2), (plain, 1)):
        inked = np.abs(plate - plate[10, 6]).max(axis=2) > 60
        rows = inked[4:-4, 25:55].any(axis=1)
        assert int((np.diff(rows.astype(int)) == 1).sum()) >= parts


@pytest.mark.gl
def test_the_window_and_the_page_are_there_and_back(make_drawing_app: MakeApp) -> None:
    page = Page(make_drawing_app(size=(300, 100)).gui, 100, 50)
    assert (page.unit, page.left, page.top) == (2.0, 50.0, 0.0)
    assert page.from_window(50, 0) == (0.0, 0.0)
    assert page.from_window(250, 100) == (100.0, 50.0)
    assert page.to_window([(0, 0), (100, 50)]).tolist() == [[50.0, 0.0], [250.0, 100.0]]


@pytest.mark.gl
def test_what_is_drawn_on_page_and_window_lies_in_the_order_of_the_calls(make_drawing_app: MakeApp) -> None:
    def draw(page: Page) -> None:
        page.rect(10, 10, 40, 40, "#ff0000")
        page.gui.rect(40, 40, 40, 40, "#00ff00")
        page.rect(30, 30, 20, 20, "#0000ff")
        page.image(page_app.graphics.white, 44, 44, 6, 6)

    page_app = make_drawing_app(size=(192, 128))
    page_app.scene.create("sheet").add_component(Sheet, draw=draw)
    page_app.run(frames=2)
    picture = page_app.graphics.read_pixels()[..., :3]
    assert bounds(picture, 0) == (20, 20, 100, 100)
    assert bounds(picture, 1) == (40, 40, 80, 80)
    assert bounds(picture, 2) == (60, 60, 100, 100)
    assert picture[94, 94].tolist() == [255, 255, 255]


@pytest.mark.gl
def test_a_page_plots_and_draws_bars_in_its_units(make_drawing_app: MakeApp) -> None:
    def draw(page: Page) -> None:
        page.bars(0, 0, 96, 20, [0.5, 1.0], high=1.0, highlight=1, color="#00ff00", highlight_color="#ff0000")
        page.plot(10, 30, 40, 20, [1.0, 1.0], low=0.0, high=2.0, color="#0000ff", fill=False)

    picture = pixels(make_drawing_app, (192, 128), draw)
    left, top, right, bottom = bounds(picture, 1)
    assert (top, bottom) == (20, 40)
    assert (left + right) / 2 == pytest.approx(48, abs=1)
    assert bounds(picture, 0)[1::2] == (0, 40)
    assert bounds(picture, 2) == pytest.approx((20, 79, 100, 82), abs=2)


@pytest.mark.gl
def test_bars_have_room_for_what_stands_above_and_below(make_drawing_app: MakeApp) -> None:
    written: list[tuple[str, float, float]] = []

    def draw(page: Page) -> None:
        def record(text: str, x: float, y: float, *_: object, **__: object) -> float:
            written.append((text, x, y))
            return 0.0

        page.text = record  # type: ignore[method-assign]
        page.bars(0, 0, 90, 60, [0.5, 0.2, 0.9], labels="abc", numbers=["5", "", "9"], back="#00ff00")

    _, top, _, bottom = bounds(pixels(make_drawing_app, (192, 128), draw), 1)
    labels, numbers = written[-6::2], written[-5::2]  # of the last frame
    assert [text for text, _, _ in labels] == ["a", "b", "c"]
    assert [x for _, x, _ in labels] == pytest.approx([15, 45, 75])
    assert all(bottom / 2 <= y < 60 for _, _, y in labels)
    assert [text for text, _, _ in numbers] == ["5", "", "9"]
    assert numbers[2][2] < numbers[0][2] < numbers[1][2]
    assert top / 2 > 8


@pytest.mark.gl
def test_a_curve_leaves_room_for_its_marks(make_drawing_app: MakeApp) -> None:
    written: list[tuple[object, ...]] = []

    def draw(page: Page) -> None:
        def record(*args: object, **_: object) -> float:
            written.append(args[:3])
            return 0.0

        page.text = record  # type: ignore[method-assign]
        curve = [1.0, 1.0]
        page.plot(8, 10, 80, 40, curve, low=0.0, high=4.0, color="#00ff00", fill=False, marks=(2, 4))
        widths.append(page.measure("2", 11)[0])

    widths: list[float] = []
    left, top, right, bottom = bounds(pixels(make_drawing_app, (192, 128), draw), 1)
    assert written[-2:] == [("2", 88, 30.0), ("4", 88, 10.0)]
    assert (top + bottom) / 4 == pytest.approx(40, abs=1)
    assert (left / 2, right / 2) == pytest.approx((8, 88 - widths[-1] - 8), abs=1.5)


@pytest.mark.gl
def test_letters_are_never_too_small_to_read(make_drawing_app: MakeApp) -> None:
    gui = make_drawing_app(size=(480, 320)).gui
    free, least = Page(gui), Page(gui, min_text=12)
    assert [least.font_size(size) for size in (8, 14, 40)] == [16, 24, 40]
    assert free.font_size(14) == 14
    assert least.measure("MMM", 14) == free.measure("MMM", 24)
    assert least.chip("N", 10, 10) > free.chip("N", 10, 10)
    assert Page(make_drawing_app(size=(960, 640)).gui, min_text=12).font_size(14) == 14


@pytest.mark.gl
def test_a_text_is_shortened_to_its_room(make_drawing_app: MakeApp) -> None:
    page = Page(make_drawing_app(size=(960, 640)).gui)
    text = "cpu on 2 job threads"
    wide = page.measure(text)[0]
    assert page.truncated(text, wide) == text
    short = page.truncated(text, wide - 1)
    assert short.endswith("...")
    assert text.startswith(short[:-3])
    assert page.measure(short)[0] <= wide - 1
    assert page.truncated(text, 0.0) == "..."
    kept = page.truncated(text, wide - 1, keeps_end=True)
    assert page.measure(kept)[0] < wide
    first, last = kept.split("...")
    assert text.startswith(first)
    assert text.endswith(last)
    assert abs(len(first) - len(last)) <= 1


def test_a_page_needs_an_area(make_app: MakeApp) -> None:
    with pytest.raises(GraphicsError, match="above 0"):
        Page(make_app(size=(300, 100)).gui, 0, 50)


def test_rectangles() -> None:
    box = Rect(10, 20, 30, 40)
    assert (box.right, box.bottom, box.center) == (40, 60, (25, 40))
    assert box.point_to_normalized(25, 30) == (0.5, 0.25)
    assert box.normalized_to_point(0.5, 0.25) == (25, 30)
    assert box.inset(5) == Rect(15, 25, 20, 30)
    assert box.inset(-5) == Rect(5, 15, 40, 50)
    assert box.grid(2, 2) == [
        Rect(10, 20, 15, 20),
        Rect(25, 20, 15, 20),
        Rect(10, 40, 15, 20),
        Rect(25, 40, 15, 20),
    ]
    assert box.grid(3, gap=3) == [Rect(10, 20, 8, 40), Rect(21, 20, 8, 40), Rect(32, 20, 8, 40)]
    assert box.contains(10, 20)
    assert not box.contains(40, 30)
    assert not box.contains(20, 60)
