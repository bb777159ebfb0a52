"""The fluid against the equations it stands for, solved densely on small grids."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from assets.smoke.pool import conjugate_gradients
from demos.smoke.fluid import Fluid, disc, jacobi, walled_box

ROWS, COLUMNS = 14, 11


@pytest.fixture
def fluid() -> Fluid:
    """A small box with a stone, in which everything moves at random."""
    made = Fluid(disc(walled_box(ROWS, COLUMNS), 6, 7, 2)[None])
    rng = np.random.default_rng(3)
    made.u = rng.standard_normal(made.u.shape, np.float32) * made.u_open
    made.v = rng.standard_normal(made.v.shape, np.float32) * made.v_open
    made.smoke = rng.random(made.smoke.shape).astype(np.float32) * made.fluid[..., None]
    return made


def exact_pressure(fluid: Fluid) -> npt.NDArray[np.float32]:
    """Each fluid cell's equation written down by itself: what flows in from its neighbours makes up for its
    divergence; the pressure in the open air above is 0.
    """
    cells = [tuple(cell) for cell in np.argwhere(~fluid.solid[0])]
    number = {cell: index for index, cell in enumerate(cells)}
    matrix, right = np.zeros((len(cells), len(cells))), np.zeros(len(cells))
    for (row, column), index in number.items():
        right[index] = -fluid.divergence()[0, row, column]
        for near in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)):
            is_air = near[0] < 0
            if is_air or near in number:
                matrix[index, index] += 1
            if near in number:
                matrix[index, number[near]] -= 1
    pressure = np.zeros((1, *fluid.solid.shape[1:]), np.float32)
    for cell, value in zip(cells, np.linalg.solve(matrix, right), strict=True):
        pressure[0, cell[0], cell[1]] = value
    return pressure


def test_the_exact_pressure_leaves_no_divergence(fluid: Fluid) -> None:
    assert np.abs(fluid.divergence()).max() > 1
    fluid.project(exact_pressure(fluid))
    assert np.abs(fluid.divergence()).max() < 1e-5


def test_jacobi_and_conjugate_gradients_find_it(fluid: Fluid) -> None:
    divergence, exact = fluid.divergence(), exact_pressure(fluid)
    found = jacobi(divergence, fluid.fluid, fluid.degree, 3000)
    np.testing.assert_allclose(found, exact, atol=1e-3)
    np.testing.assert_allclose(conjugate_gradients(fluid, divergence, 1e-7), exact, atol=1e-4)


def test_more_iterations_leave_less(fluid: Fluid) -> None:
    left = []
    for count in (5, 50, 500):
        u, v = fluid.u.copy(), fluid.v.copy()
        fluid.project(jacobi(fluid.divergence(), fluid.fluid, fluid.degree, count))
        left.append(np.abs(fluid.divergence()).mean())
        fluid.u, fluid.v = u, v
    assert left[0] > 1.2 * left[1] > 2.4 * left[2]


def test_nothing_flows_through_walls_and_stones(fluid: Fluid) -> None:
    for _ in range(5):
        fluid.stir(5, 6, 1.0, -1.0, 3.0, (1, 1, 1))
        fluid.advance()
        fluid.project(exact_pressure(fluid))
    solid = fluid.solid[0]
    assert not fluid.u[0][:, 1:][solid].any()
    assert not fluid.u[0][:, :-1][solid].any()
    assert not fluid.v[0][1:][solid].any()
    assert not fluid.v[0][:-1][solid].any()
    assert not fluid.smoke[0][solid].any()
    assert not fluid.divergence()[0][solid].any()


def test_an_even_wind_carries_smoke_along() -> None:
    fluid = Fluid(np.zeros((1, 20, 20), np.bool_))
    fluid.u[:] = 2.0
    fluid.smoke[0, 10, 5] = 0.01  # so thin that it hardly rises
    fluid.advance()
    assert np.unravel_index(fluid.smoke[0, :, :, 0].argmax(), (20, 20)) == (10, 7)


def test_thick_smoke_rises() -> None:
    fluid = Fluid(walled_box(20, 20)[None])
    fluid.smoke[0, 12:16, 8:12] = 1.0
    for _ in range(20):
        fluid.advance()
        fluid.project(conjugate_gradients(fluid, fluid.divergence()))
    weight = fluid.smoke[0, :, :, 0].sum(axis=1)
    assert (weight * np.arange(20)).sum() / weight.sum() < 12.0


def test_boxes_beside_each_other_do_not_mix() -> None:
    both = Fluid(np.stack([walled_box(16, 12), disc(walled_box(16, 12), 6, 6, 2)]))
    alone = Fluid(both.solid[1:].copy())
    for made in (both, alone):
        for _ in range(4):
            made.stir(6, 11, 0.5, -1.0, 2.0, (1, 0.5, 0))
            made.advance()
            made.project(jacobi(made.divergence(), made.fluid, made.degree, 30))
    np.testing.assert_allclose(both.smoke[1], alone.smoke[0], atol=1e-6)
    np.testing.assert_allclose(both.v[1], alone.v[0], atol=1e-6)


def test_a_new_stone_stops_what_flows_in_it(fluid: Fluid) -> None:
    fluid.set_solid(disc(walled_box(ROWS, COLUMNS), 4, 4, 2)[None])
    assert not fluid.smoke[0][fluid.solid[0]].any()
    assert not fluid.u[fluid.u_open == 0].any()
