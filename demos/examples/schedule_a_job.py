"""A job: a Python function, compiled and run on other threads, that waits for the tensors it uses."""

import numpy as np

from gameglue import Tensor, job


@job
def square(begin, end, x):  # type: ignore[no-untyped-def]
    """Square the elements of a range."""
    for i in range(begin, end):
        x[i] = x[i] * x[i]


def main() -> list[float]:
    """Square twice; the second job waits for the first, and the main thread for neither."""
    x = Tensor(np.array([1, 2, 3], np.float32))
    square.schedule(x)
    handle = square.schedule(x)
    while not handle.is_completed:
        pass  # a game draws a frame
    squares: list[float] = x.download_to_array().tolist()
    return squares


if __name__ == "__main__":
    print(main())
