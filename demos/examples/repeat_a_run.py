"""The same seed gives the same game: random numbers come from `app.random`, a NumPy generator."""

from gameglue import App, MonoBehaviour


class Dice(MonoBehaviour):
    """Throws a die in every frame."""

    def awake(self) -> None:
        """Nothing is thrown yet."""
        self.thrown: list[int] = []

    def update(self) -> None:
        """Throw."""
        self.thrown.append(int(self.app.random.integers(1, 7)))


def throw(seed: int) -> list[int]:
    """What a game with this seed throws in eight frames."""
    with App("dice", headless=True, seed=seed) as app:
        dice = app.scene.create("dice").add_component(Dice)
        app.run(frames=8)
    return dice.thrown


def main() -> list[list[int]]:
    """One seed twice, then another."""
    return [throw(7), throw(7), throw(8)]


if __name__ == "__main__":
    first, again, other = main()
    print(f"seed 7 repeats: {first == again}; seed 8 differs: {first != other}")
