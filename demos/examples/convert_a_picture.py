"""A picture becomes a tensor of the size and range that a model wants, and a picture again."""

import numpy as np

from gameglue import TextureConverter, TextureTransform


def main() -> tuple[np.ndarray, np.ndarray]:
    """A red picture as a tensor from -1 to 1, and back."""
    pixels = np.zeros((48, 64, 3), np.uint8)
    pixels[:, :, 0] = 255
    wanted = TextureTransform().set_dimensions(width=32, height=24).set_scale_offset(2.0, -1.0)
    with TextureConverter.to_tensor(pixels, wanted) as tensor:
        array = tensor.download_to_array()
        print("tensor", array.shape, "red", array[0, 0, 0, 0], "green", array[0, 1, 0, 0])
        again = TextureConverter.to_texture(tensor, wanted, texture=np.zeros((24, 32, 3), np.uint8))
    print("picture", again.shape, again[0, 0].tolist())
    return array, again


if __name__ == "__main__":
    main()
