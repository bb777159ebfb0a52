"""A network that imitates: it fits what a player saw and did, step by step."""

import numpy as np

from gameglue import DenseNetwork


def main() -> tuple[float, float]:
    """The mean error before and after 300 steps."""
    random = np.random.default_rng(4)
    network = DenseNetwork(2, 8, 1)
    weights = network.init_weights(random)
    seen = random.uniform(-1, 1, (500, 2))
    done = np.tanh(seen[:, 1:] - seen[:, :1])  # what the player did each time

    def error() -> float:
        return float(np.abs(network.forward(weights, seen) - done).mean())

    before = error()
    fits = network.fit(weights, seen, done, random)  # keep it, and take a few steps in each frame
    for _ in range(300):
        weights = next(fits)
    return before, error()


if __name__ == "__main__":
    before, after = main()
    print(f"error {before:.1f}, then {after:.1f}")
