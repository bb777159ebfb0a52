"""The examples do what they say: each runs, and its results are compared with NumPy's or onnxruntime's."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from demos.examples import (
    access_tensor_data,
    build_a_model,
    create_an_engine,
    edit_a_model,
    give_inputs,
    inspect_a_model,
    keep_an_output,
    quantize_a_model,
    read_output_three_ways,
    run_on_each_backend,
    serialize_a_model,
    split_over_frames,
    use_a_command_buffer,
    use_textures,
    whole_workflow,
)
from tests.conftest import ROOT
from tests.peer import open_session

DIGITS = ROOT / "assets/digits/digits.onnx"


def digits(image: np.ndarray) -> np.ndarray:
    """What onnxruntime says of a picture: (1, 10)."""
    session = open_session(DIGITS)
    (answer,) = session.run(None, {"image": image.astype(np.float32)})
    return np.asarray(answer)


ONES = np.ones((1, 1, 28, 28), np.float32)


def test_create_an_engine() -> None:
    made = create_an_engine.main()
    assert made.worker.is_disposed


def test_run_on_each_backend() -> None:
    answers = run_on_each_backend.main()
    expected = digits(np.random.default_rng(1).random((1, 1, 28, 28), np.float32))
    assert "cpu" in answers
    for answer in answers.values():
        np.testing.assert_allclose(answer, expected, atol=1e-4)


def test_read_output_three_ways() -> None:
    ways = read_output_three_ways.main()
    assert list(ways.answers) == ["waiting", "polling", "awaiting"]
    assert ways.frames["waiting"] == 0
    for answer in ways.answers.values():
        np.testing.assert_allclose(answer, digits(ONES), atol=1e-5)


def test_split_over_frames() -> None:
    split = split_over_frames.main()
    assert split.frames > 1
    assert split.answer is not None
    np.testing.assert_allclose(split.answer, digits(ONES), atol=1e-5)


def test_use_a_command_buffer() -> None:
    recorded = use_a_command_buffer.main()
    assert recorded.replayed == [0, 2, 2, 2, 2]
    # Five frames, numbered from 1: the last picture is 0.5, and an average next to the edge has fewer to add.
    padded = np.pad(np.full((28, 28), 0.5, np.float32), 1)
    inside = np.pad(np.ones((28, 28)), 1)
    windows = np.lib.stride_tricks.sliding_window_view
    soft = windows(padded, (3, 3)).sum((2, 3)) / windows(inside, (3, 3)).sum((2, 3))
    np.testing.assert_allclose(recorded.answer, digits(soft[None, None]), atol=1e-4)


@pytest.mark.gl
def test_use_textures() -> None:
    pixel = use_textures.main()
    if pixel is None:
        pytest.skip("no OpenGL here")
    background = np.array([0x12, 0x15, 0x1C]) / 255  # the app's own
    np.testing.assert_allclose(pixel, 1 - background, atol=1 / 255)
    grey = use_textures.small_grey(np.full((16, 16), 255, np.uint8))
    assert grey.shape == (1, 8, 8, 1)
    assert (grey == 1.0).all()


def test_build_a_model() -> None:
    onnx.checker.check_model(build_a_model.build())
    np.testing.assert_allclose(build_a_model.main(), [5.0, 3.0])


def test_edit_a_model() -> None:
    expected = digits(ONES / 2)
    digit, sureness = edit_a_model.main()
    assert digit == expected.argmax()
    assert sureness == pytest.approx(expected.max(), abs=1e-5)


def test_inspect_a_model() -> None:
    lines = inspect_a_model.main()
    (given,) = onnx.load(DIGITS).graph.input
    assert lines[0].startswith(f"input {given.name}: float32")
    assert [line.partition(" ")[0] for line in lines] == ["input", "output", "14"]


def test_give_inputs() -> None:
    answers = [answer.tolist() for answer in give_inputs.main()]
    assert answers == [[[2, 2]], [[3, 3]], [[4, 4]] * 3, [[0, 4], [8, 12]]]


def test_keep_an_output() -> None:
    assert keep_an_output.main() == ([2, 4, 6], [4, 8, 12], True)


def test_serialize_and_encrypt_a_model() -> None:
    for answer in serialize_a_model.main():
        np.testing.assert_allclose(answer, digits(ONES), atol=1e-5)
    sealed = serialize_a_model.encrypt(b"weights" * 10, b"key")
    assert b"weights" not in sealed
    assert serialize_a_model.decrypt(sealed, b"key") == b"weights" * 10
    for broken, key in ((sealed[:-1] + b"?", b"key"), (sealed, b"other")):
        with pytest.raises(ValueError, match="not its key"):
            serialize_a_model.decrypt(broken, key)


def test_quantize_a_model() -> None:
    before, after, exact, rounded = quantize_a_model.main()
    assert after < 0.3 * before
    image = np.random.default_rng(3).random((1, 1, 28, 28), np.float32)
    np.testing.assert_allclose(exact, digits(image), atol=1e-5)
    np.testing.assert_allclose(rounded, exact, atol=0.05)
    model = quantize_a_model.quantize_weights(onnx.load(DIGITS)).SerializeToString()
    session = open_session(model)
    np.testing.assert_allclose(rounded, np.asarray(session.run(None, {"image": image})[0]), atol=1e-4)


@pytest.mark.gl
def test_access_tensor_data() -> None:
    assert access_tensor_data.on_the_cpu() == ([10] * 4, [0, 2, 4, 6])
    assert access_tensor_data.on_the_gpu() in ([0, 20, 40, 60], None)


def test_whole_workflow() -> None:
    digit, probability = whole_workflow.main()
    assert digit == 1
    assert probability > 0.9
