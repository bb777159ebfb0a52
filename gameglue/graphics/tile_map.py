"""`TileMap`: a level made of sprite sheet frames."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Annotated

import numpy as np

from gameglue.errors import GraphicsError
from gameglue.graphics.batch import View
from gameglue.graphics.camera import Renderer
from gameglue.graphics.canvas import Canvas
from gameglue.graphics.colors import Color
from gameglue.graphics.sprite_sheet import SpriteSheet
from gameglue.scene.vector import Vec3
from gameglue.scripting.fields import Range


class TileMap(Renderer):
    """A grid of frames, centred on the object; visible tiles are drawn in one call."""

    sheet: SpriteSheet
    """The frames."""
    tiles: np.ndarray | Sequence[Sequence[int]]
    """(rows, columns) numbers of frames, row 0 on top; negative ones are empty. May change at any time."""
    tile_size: Annotated[float, Range(0.0, inf, "units", exclusive=True)] = 1.0
    """Width and height of a tile in the world."""
    color: Color = "white"
    """Multiplies the tiles' colours."""

    def tile_at(self, point: Iterable[float]) -> tuple[int, int] | None:
        """Row and column of the tile at a point of the world; `None` outside of the map."""
        rows, columns = self._grid().shape
        x, y, _ = self.transform.to_local(point)
        row = int(np.floor(rows / 2 - y / self.tile_size))
        column = int(np.floor(columns / 2 + x / self.tile_size))
        return (row, column) if 0 <= row < rows and 0 <= column < columns else None

    def center_of(self, row: int, column: int) -> Vec3:
        """The middle of a tile in the world."""
        rows, columns = self._grid().shape
        offset = (column + 0.5 - columns / 2, rows / 2 - row - 0.5)
        return self.transform.to_world((offset[0] * self.tile_size, offset[1] * self.tile_size))

    def draw(self, canvas: Canvas) -> None:
        """Draw the tiles that are in view."""
        grid = self._grid()
        top, bottom, left, right = self._seen(canvas.view, grid.shape)
        part = grid[top:bottom, left:right]
        rows, columns = np.nonzero(part >= 0)
        if not len(rows):
            return
        matrix, size = self.transform.matrix, self.tile_size
        local = np.stack(
            (columns + left + 0.5 - grid.shape[1] / 2, grid.shape[0] / 2 - rows - top - 0.5), axis=1
        )
        scale = self.transform.lossy_scale
        canvas.sprites(
            self.sheet.texture,
            local * size @ matrix[:2, :2].T + matrix[:2, 3],
            np.array([(size * scale.x, size * scale.y)]),
            rotations=self.transform.angle,
            colors=self.color,
            regions=self.sheet.regions()[part[rows, columns] % len(self.sheet)],
        )

    def _grid(self) -> np.ndarray:
        grid = np.asarray(self.tiles)
        if grid.ndim != 2 or not np.issubdtype(grid.dtype, np.integer):
            raise GraphicsError(f"tiles must be (rows, columns) whole numbers, got {grid.dtype} {grid.shape}")
        return grid

    def _seen(self, view: View, shape: tuple[int, ...]) -> tuple[int, int, int, int]:
        """The first row, the one after the last, and the same for columns, of what the camera may see."""
        to_clip = np.array((view.x, view.y))
        corners = np.array([(x, y) for x in (-1.0, 1.0) for y in (-1.0, 1.0)]) - to_clip[:, 2]
        world = np.linalg.solve(to_clip[:, :2], corners.T).T
        local = np.array([self.transform.to_local((x, y))[:2] for x, y in world.tolist()]) / self.tile_size
        columns, rows = shape[1] / 2 + local[:, 0], shape[0] / 2 - local[:, 1]
        return (
            int(np.clip(np.floor(rows.min()), 0, shape[0])),
            int(np.clip(np.ceil(rows.max()), 0, shape[0])),
            int(np.clip(np.floor(columns.min()), 0, shape[1])),
            int(np.clip(np.ceil(columns.max()), 0, shape[1])),
        )
