"""From a picture to a decision in one script: load, convert, schedule, read, decide, free."""

import numpy as np

from gameglue import App, BackendType, ModelLoader, TextureConverter, TextureTransform, Worker


def drawn_one() -> np.ndarray:
    """A picture (56, 56) uint8 of a 1, as a game would have drawn it: white on black."""
    picture = np.zeros((56, 56), np.uint8)
    picture[8:48, 26:31] = 255
    return picture


def main() -> tuple[int, float]:
    """The digit that the network sees in the picture, and its probability."""
    with App("workflow", headless=True) as app:
        model = ModelLoader.load(app.resources.find("digits/digits.onnx"))
    how = TextureTransform().set_dimensions(28, 28, 1).set_resampling("area")
    with (
        Worker(model, BackendType.CPU) as worker,
        TextureConverter.to_tensor(drawn_one(), how) as picture,  # (1, 1, 28, 28), from 0 to 1
    ):
        worker.schedule(picture)
        probabilities = worker.peek_output().download_to_array()[0]
    return int(probabilities.argmax()), float(probabilities.max())


if __name__ == "__main__":
    digit, probability = main()
    print(f"a {digit}, at {probability:.0%}")
