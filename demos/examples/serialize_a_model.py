"""A model as bytes: ONNX's own file format, from and to anywhere; and encrypted, for files that players have.

A file that players have can be decrypted with what players have: encryption keeps honest people honest. Take
a library (`cryptography`) where that matters; this one needs none.
"""

import hashlib
import hmac
import io
import secrets

import numpy as np

from gameglue import App, ModelLoader, Worker


def encrypt(data: bytes, key: bytes) -> bytes:
    """Sealed bytes: a random start, a mark that shows changes, and the data under a stream of its own."""
    start = secrets.token_bytes(16)
    hidden = _mixed(data, key, start)
    return start + hmac.digest(key, start + hidden, "sha256") + hidden


def decrypt(sealed: bytes, key: bytes) -> bytes:
    """What was encrypted. Raises `ValueError` for another key, and where something was changed."""
    start, mark, hidden = sealed[:16], sealed[16:48], sealed[48:]
    if not hmac.compare_digest(mark, hmac.digest(key, start + hidden, "sha256")):
        raise ValueError("the model was changed, or this is not its key")
    return _mixed(hidden, key, start)


def _mixed(data: bytes, key: bytes, start: bytes) -> bytes:
    stream = hashlib.shake_256(b"stream" + key + start).digest(len(data))
    mixed: np.ndarray = np.frombuffer(data, np.uint8) ^ np.frombuffer(stream, np.uint8)
    return mixed.tobytes()


def main() -> list[np.ndarray]:
    """The answers of a model from its file, from bytes, from a file object, and from sealed bytes."""
    key = secrets.token_bytes(32)
    with App("serialize", headless=True) as app:
        path = app.resources.find("digits/digits.onnx")
    data = path.read_bytes()
    answers = []
    for source in (path, data, io.BytesIO(data), decrypt(encrypt(data, key), key)):
        with Worker(ModelLoader.load(source)) as worker:
            worker.schedule(np.ones((1, 1, 28, 28), np.float32))
            answers.append(worker.peek_output().download_to_array())
    return answers


if __name__ == "__main__":
    for answer in main():
        print(answer.argmax(), answer.max())
