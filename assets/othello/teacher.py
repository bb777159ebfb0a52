"""Othello compiled with numba, and the scripted player whose games the network learns from.

A board is two 64-bit sets, the mover's discs and the other's; bit 8 * row + column is a square, row 0 on top.
The teacher is an alpha-beta search over mobility, corners and frontier discs; it plays
the last moves exactly.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit, prange

Bits = npt.NDArray[np.uint64]

U = np.uint64
ZERO, ONE, FULL = U(0), U(1), U(0xFFFFFFFFFFFFFFFF)
BLACK_START, WHITE_START = U(1 << 28 | 1 << 35), U(1 << 27 | 1 << 36)
_INNER = U(0x7E7E7E7E7E7E7E7E)
_SHIFTS = np.array([1, 8, 7, 9], np.uint64)
_MASKS = np.array([_INNER, FULL, _INNER, _INNER], np.uint64)
CORNERS = U(1 | 1 << 7 | 1 << 56 | 1 << 63)
# Each corner with the square diagonal to it and the two beside it, which give it away while it is empty.
_CORNER = np.array([1, 1 << 7, 1 << 56, 1 << 63], np.uint64)
_DIAGONAL = np.array([1 << 9, 1 << 14, 1 << 49, 1 << 54], np.uint64)
_BESIDE = np.array([1 << 1 | 1 << 8, 1 << 6 | 1 << 15, 1 << 48 | 1 << 57, 1 << 55 | 1 << 62], np.uint64)

DISC = 100.0
"""What a disc of the final difference counts, in the units of `evaluate`."""
EXACT_EMPTIES = 8
"""With so many empty squares the teacher searches to the end."""
MARGIN = 600.0
"""How far a root move may lie behind the best before its exact score no longer matters."""
_INFINITE = 1e9


@njit(cache=False)
def count(bits: np.uint64) -> int:
    """How many bits are set."""
    bits = bits - ((bits >> U(1)) & U(0x5555555555555555))
    bits = (bits & U(0x3333333333333333)) + ((bits >> U(2)) & U(0x3333333333333333))
    bits = (bits + (bits >> U(4))) & U(0x0F0F0F0F0F0F0F0F)
    return np.int64((bits * U(0x0101010101010101)) >> U(56))


@njit
def legal(own: np.uint64, other: np.uint64) -> np.uint64:
    """The squares that the owner of `own` may play."""
    moves = ZERO
    for i in range(4):
        s, inside = _SHIFTS[i], other & _MASKS[i]
        up, down = inside & (own << s), inside & (own >> s)
        for _ in range(5):
            up |= inside & (up << s)
            down |= inside & (down >> s)
        moves |= (up << s) | (down >> s)
    return moves & ~(own | other)


@njit
def flipped(own: np.uint64, other: np.uint64, move: np.uint64) -> np.uint64:
    """The discs that a move (one bit) turns over."""
    turned = ZERO
    for i in range(4):
        s, inside = _SHIFTS[i], other & _MASKS[i]
        up, down = inside & (move << s), inside & (move >> s)
        for _ in range(5):
            up |= inside & (up << s)
            down |= inside & (down >> s)
        if (up << s) & own:
            turned |= up
        if (down >> s) & own:
            turned |= down
    return turned


@njit
def _around(bits: np.uint64) -> np.uint64:
    """The neighbours of a set, and the set."""
    row = bits | ((bits & U(0x7F7F7F7F7F7F7F7F)) << ONE) | ((bits & U(0xFEFEFEFEFEFEFEFE)) >> ONE)
    return row | (row << U(8)) | (row >> U(8))


@njit
def evaluate(own: np.uint64, other: np.uint64) -> float:
    """How good a position is for its mover; about `DISC` for each disc it should win by."""
    mine, theirs = count(legal(own, other)), count(legal(other, own))
    score = 130.0 * (mine - theirs) / (1.0 + 0.12 * (mine + theirs))
    empty = ~(own | other)
    near = _around(empty)
    score -= 28.0 * (count(own & near) - count(other & near))
    for i in range(4):
        if own & _CORNER[i]:
            score += 620.0 + 90.0 * count(own & _BESIDE[i])
        elif other & _CORNER[i]:
            score -= 620.0 + 90.0 * count(other & _BESIDE[i])
        else:
            score -= 260.0 * (count(own & _DIAGONAL[i]) - count(other & _DIAGONAL[i]))
            score -= 80.0 * (count(own & _BESIDE[i]) - count(other & _BESIDE[i]))
    return score


@njit
def search(own: np.uint64, other: np.uint64, depth: int, alpha: float, beta: float) -> float:
    """Negamax with alpha-beta: the mover's score; final positions count `DISC` a disc."""
    moves = legal(own, other)
    if moves == ZERO:
        if legal(other, own) == ZERO:
            return DISC * (count(own) - count(other))
        return -search(other, own, depth, -beta, -alpha)
    if depth <= 0:
        return evaluate(own, other)
    for stage in range(2):  # Corners first: they cut off most.
        some = moves & CORNERS if stage == 0 else moves & ~CORNERS
        while some:
            move = some & (~some + ONE)
            some ^= move
            turned = flipped(own, other, move)
            score = -search(other ^ turned, own ^ turned ^ move, depth - 1, -beta, -alpha)
            if score > alpha:
                alpha = score
                if alpha >= beta:
                    return alpha
    return alpha


@njit
def score_moves(own: np.uint64, other: np.uint64, depth: int, scores: npt.NDArray[np.float32]) -> float:
    """Fill `scores` (64,) with the score of each legal move, -inf elsewhere; returns the best."""
    scores[:] = -np.inf
    moves, best = legal(own, other), -_INFINITE
    if 64 - count(own | other) <= EXACT_EMPTIES:
        depth = 64
    for square in range(64):
        move = ONE << U(square)
        if moves & move:
            turned = flipped(own, other, move)
            low = best - MARGIN
            found = -search(other ^ turned, own ^ turned ^ move, depth - 1, -_INFINITE, -low)
            scores[square] = max(found, low)
            best = max(best, found)
    return best


@njit
def _random(state: npt.NDArray[np.uint64]) -> float:
    """The next number in [0, 1) of a splitmix64 sequence, whose state (1,) goes on."""
    state[0] += U(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> U(30))) * U(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> U(27))) * U(0x94D049BB133111EB)
    return ((z ^ (z >> U(31))) >> U(11)) / 9007199254740992.0


@njit
def _random_move(moves: np.uint64, state: npt.NDArray[np.uint64]) -> int:
    skip = int(_random(state) * count(moves))
    for square in range(64):
        if moves & (ONE << U(square)):
            if skip == 0:
                return square
            skip -= 1
    return -1


@njit(parallel=True)
def play_games(
    games: int, depth: int, seed: int, warmth: float
) -> tuple[Bits, npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Let the teacher play itself: boards (games, 60, 2), move scores (games, 60, 64), results (games, 60).

    A game begins with 2 to 19 random moves, and a move in twenty is random later on. The others are drawn by
    their scores divided by `warmth`. A result is the mover's final difference in discs; rows without a move
    are all zeros.
    """
    boards = np.zeros((games, 60, 2), np.uint64)
    scores = np.zeros((games, 60, 64), np.float32)
    results = np.zeros((games, 60), np.float32)
    for game in prange(games):
        state = np.array([U(seed) * U(1000003) + U(game)], np.uint64)
        own, other, black, ply = BLACK_START, WHITE_START, True, 0
        opening = 2 + int(_random(state) * 18)
        colors = np.zeros(60, np.float32)
        while ply < 60:
            moves = legal(own, other)
            if moves == ZERO:
                if legal(other, own) == ZERO:
                    break
                own, other, black = other, own, not black
                continue
            row = scores[game, ply]
            if ply < opening:
                square = _random_move(moves, state)
            else:
                best = score_moves(own, other, depth, row)
                boards[game, ply, 0], boards[game, ply, 1] = own, other
                square = -1
                if _random(state) < 0.05:
                    square = _random_move(moves, state)
                else:
                    total = 0.0
                    for i in range(64):
                        total += np.exp((row[i] - best) / warmth)
                    rest = _random(state) * total
                    for i in range(64):
                        if row[i] > -np.inf:
                            square = i
                            rest -= np.exp((row[i] - best) / warmth)
                            if rest < 0.0:
                                break
            colors[ply] = 1.0 if black else -1.0
            move = ONE << U(square)
            turned = flipped(own, other, move)
            own, other, black = other ^ turned, own ^ turned ^ move, not black
            ply += 1
        difference = count(own) - count(other)
        black_wins_by = difference if black else -difference
        results[game] = colors * np.float32(black_wins_by)
    return boards, scores, results
