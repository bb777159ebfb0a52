"""Latest-only requests: a newer one replaces one that has not begun, so answers are never old."""

import numpy as np

from gameglue import App, Model, RequestReplacedError, Worker

DIGITS = "digits/digits.onnx"


def main() -> list[str]:
    """Three requests in one frame, of which the last runs; returns their states."""
    image = np.zeros((1, 1, 28, 28), np.float32)
    with App("latest", headless=True) as app, Worker(app.resources.load(DIGITS, Model)) as worker:
        requests = [app.inference.submit(worker, image, latest_only=True) for _ in range(3)]
        while not requests[-1].is_done():
            app.step()
        try:
            requests[0].result()
        except RequestReplacedError:
            print("the first was replaced")
        print("the last reads", requests[-1].result().argmax())
    return [request.state for request in requests]


if __name__ == "__main__":
    print(main())
