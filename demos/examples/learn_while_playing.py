"""A network that learns in the game: a few generations in each frame, by trying variants of its weights."""

import numpy as np

from gameglue import App, DenseNetwork, EvolutionStrategy, MonoBehaviour

NETWORK = DenseNetwork(2, 8, 1)  # own position and the goal's; one move


class Student(MonoBehaviour):
    """Learns to move to a goal."""

    def awake(self) -> None:
        """Random weights."""
        weights = NETWORK.init_weights(np.random.default_rng(1))
        self.evolution = EvolutionStrategy(weights, np.random.default_rng(2), pairs=16, rate=0.05)

    def update(self) -> None:
        """One generation: the fitness of each variant is how near it comes to the goal."""
        variants = self.evolution.sample()
        places = self.evolution.random.uniform(-1, 1, (1, 50, 2))
        moves = NETWORK.forward(variants, places)[..., 0]
        self.evolution.update(-np.abs(places[..., 0] + moves - places[..., 1]).mean(axis=1))


def main() -> float:
    """Four hundred frames; returns where the student goes from 0 if the goal is at 0.5."""
    with App("student", headless=True) as app:
        student = app.scene.create("student").add_component(Student)
        app.run(frames=400)
    return float(NETWORK.forward(student.evolution.weights, np.array([[0.0, 0.5]]))[0, 0])


if __name__ == "__main__":
    print(f"moves to {main():.1f}")
