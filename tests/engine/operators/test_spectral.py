"""DFT and STFT against NumPy's transforms, windows and mel weights against ONNX's reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.base.errors import ShapeError
from engine.operators.spectral import RADIX_LIMIT, radices
from tests.engine.conftest import MakeWorker, answers
from tests.engine.operators.independent import by_reference
from tests.engine.operators.single import one_layer, run, structures
from tests.onnx_cases import disagreement

LENGTHS = (1, 2, 7, 12, 97, 128, 257, 514, 1000)


def pairs(x: np.ndarray) -> np.ndarray:
    """Complex numbers as (..., 2)."""
    return np.stack([x.real, x.imag], -1)


def expected_of(x: np.ndarray, axis: int, n: int, inverse: int, onesided: int) -> np.ndarray:
    """NumPy's transform of (..., 1) or (..., 2)."""
    numbers = x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0].astype(np.complex128)
    if inverse:
        if onesided:
            return np.fft.irfft(numbers, n, axis)[..., None]
        return pairs(np.fft.ifft(numbers, n, axis))
    found = np.fft.fft(numbers, n, axis)
    return pairs(found.take(range(n // 2 + 1), axis) if onesided else found)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize(("inverse", "onesided"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_dft(n: int, inverse: int, onesided: int, rng: np.random.Generator) -> None:
    parts = 1 if onesided and not inverse else 2
    x = rng.normal(size=(2, n // 2 + 1 if inverse and onesided else n, 3, parts)).astype(np.float32)
    attributes = {"inverse": inverse, "onesided": onesided}
    found = run("DFT", [x, np.array(n), np.array(1)], attributes)[0]
    assert disagreement(found, expected_of(x, 1, n, inverse, onesided)) < 1e-6


@pytest.mark.parametrize("n", [192, 193, 256, 390, 1000])
@pytest.mark.parametrize(("inverse", "onesided"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_rows_that_lie_as_a_whole(n: int, inverse: int, onesided: int, rng: np.random.Generator) -> None:
    attributes = {"inverse": inverse, "onesided": onesided}
    for parts in (1, 2):
        x = rng.normal(size=(3, n // 2 + 1 if inverse and onesided else n, parts)).astype(np.float32)
        found = run("DFT", [x, np.array(n), np.array(1)], attributes)[0]
        assert disagreement(found, expected_of(x, 1, n, inverse, onesided)) < 1e-6
        if not (inverse and onesided):
            found = run("DFT", [x, None, np.array(1)], attributes)[0]
            assert disagreement(found, expected_of(x, 1, n, inverse, onesided)) < 1e-6


@pytest.mark.parametrize("length", [3, 5, 12, 300])
@pytest.mark.parametrize(("inverse", "onesided"), [(0, 0), (1, 0), (1, 1)])
def test_the_signal_is_cut_or_filled_up_with_zeros(
    length: int, inverse: int, onesided: int, rng: np.random.Generator
) -> None:
    x = rng.normal(size=(3, 5, 2)).astype(np.float32)
    attributes = {"inverse": inverse, "onesided": onesided}
    for n in (length, length + 257 - length % 257):
        found = run("DFT", [x, np.array(n)], attributes)[0]
        assert disagreement(found, expected_of(x, 1, n, inverse, onesided)) < 1e-6


def test_dft_of_other_axes_and_versions(rng: np.random.Generator) -> None:
    x = rng.normal(size=(4, 3, 6, 1)).astype(np.float32)
    for axis in (0, 1, 2, -2, -4):
        expected = expected_of(x, axis % 4, x.shape[axis], 0, 0)
        assert disagreement(run("DFT", [x, None, np.array(axis)])[0], expected) < 1e-6
        assert disagreement(run("DFT", [x], {"axis": axis}, opset=17)[0], expected) < 1e-6
    assert disagreement(run("DFT", [x], opset=17)[0], expected_of(x, 1, 3, 0, 0)) < 1e-6
    assert disagreement(run("DFT", [x])[0], expected_of(x, 2, 6, 0, 0)) < 1e-6
    default = run("DFT", [x[..., :1].repeat(2, -1)], {"inverse": 1, "onesided": 1})[0]
    assert default.shape == (4, 3, 10, 1)


def test_a_real_signal_may_lack_its_last_axis(rng: np.random.Generator) -> None:
    x = rng.normal(size=(3, 2, 12, 1)).astype(np.float32)
    for axis in (1, 2, -2):
        expected = run("DFT", [x, None, np.array(axis)], {"onesided": 1})[0]
        np.testing.assert_array_equal(
            run("DFT", [x[..., 0], None, np.array(axis)], {"onesided": 1})[0], expected
        )
    for n in (1, 2, 12):
        one = x[0, :, :n]
        found = run("DFT", [one[..., 0]], {"axis": 1}, opset=17)[0]
        np.testing.assert_array_equal(found, run("DFT", [one], {"axis": 1}, opset=17)[0])


def test_dft_element_types(rng: np.random.Generator) -> None:
    x = rng.normal(size=(2, 24, 2))
    assert disagreement(run("DFT", [x])[0], expected_of(x, 1, 24, 0, 0)) < 1e-14
    half = run("DFT", [x.astype(np.float16)])[0]
    assert half.dtype == np.float16
    assert disagreement(half, expected_of(x.astype(np.float16), 1, 24, 0, 0)) < 2e-3


def test_a_signal_without_elements_is_zero() -> None:
    (found,) = run("DFT", [np.zeros((2, 0, 1), np.float32), np.array(4)])
    np.testing.assert_array_equal(found, np.zeros((2, 4, 2)))


def test_passes() -> None:
    assert radices(1) == [1]
    assert radices(1024) == [16, 16, 4]
    assert radices(97) == [1, 97] or radices(97) == [97]
    for n in range(1, 300):
        assert np.prod(radices(n)) == n
        assert all(r <= RADIX_LIMIT or n % r == 0 for r in radices(n))


def test_a_new_batch_needs_no_new_kernel() -> None:
    model = one_layer(
        "DFT", [np.zeros((4, 24, 3, 2), np.float32), None, np.array(1)], known=(2,), dynamic=(0,)
    )
    expected = structures(model, {"x0": (1, 24, 1, 2)})
    assert structures(model, {"x0": (7, 24, 5, 2)}) == expected
    assert set(structures(model, {"x0": (7, 1000, 5, 2)})) == set(expected)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize(("window", "length"), [(True, None), (True, 16), (False, 16), (False, None)])
def test_stft(parts: int, onesided: int, window: bool, length: int | None, rng: np.random.Generator) -> None:
    signal = rng.normal(size=(2, 53, parts)).astype(np.float32)
    shape = rng.uniform(size=16).astype(np.float32) if window else None
    arrays = [signal, np.array(5), shape, None if length is None else np.array(length)]
    (found,) = run("STFT", arrays, {"onesided": onesided})
    n = length or (16 if window else 53)
    frames = np.stack([signal[:, s : s + n] for s in range(0, 53 - n + 1, 5)], 1)
    if shape is not None:
        frames = frames * shape[:, None]
    assert disagreement(found, expected_of(frames, 2, n, 0, onesided)) < 1e-6
    if parts == 1:
        (reference,) = by_reference("STFT", arrays, {"onesided": onesided})
        assert disagreement(found, reference) < 1e-5


@pytest.mark.parametrize("name", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("datatype", [1, 7, 11])
def test_windows(name: str, periodic: int, datatype: int) -> None:
    attributes = {"periodic": periodic, "output_datatype": datatype}
    for size in (2, 3, 10):
        (expected,) = by_reference(name, [np.array(size)], attributes)
        (found,) = run(name, [np.array(size)], attributes)
        assert found.dtype == expected.dtype
        assert disagreement(found, expected) < 1e-6
    (single,) = run(name, [np.array(1)], {"periodic": 0})
    np.testing.assert_allclose(single, [1.0], rtol=1e-6)
    assert run(name, [np.array(0)], attributes)[0].shape == (0,)


def test_mel_weights() -> None:
    for bands, length, rate, low, high in ((8, 16, 8192, 0.0, 4096.0), (20, 512, 16000, 80.0, 7600.0)):
        arrays = [
            np.array(bands), np.array(length), np.array(rate), np.array(low, np.float32),
            np.array(high, np.float32),
        ]  # fmt: skip
        expected = by_reference("MelWeightMatrix", arrays)[0]
        assert disagreement(run("MelWeightMatrix", arrays)[0], expected) < 1e-6


@pytest.mark.spread
@settings(max_examples=8)
@given(
    n=st.sampled_from(LENGTHS),
    outer=st.sampled_from((0, 1, 3)),
    mode=st.sampled_from(((1, 0, 1), (2, 0, 0), (2, 1, 0), (2, 1, 1))),
)
def test_every_backend_agrees_with_numpy(
    channel: str, make_worker: MakeWorker, n: int, outer: int, mode: tuple[int, int, int]
) -> None:
    parts, inverse, onesided = mode
    x = np.random.default_rng(n).normal(size=(outer, n, 2, parts)).astype(np.float32)
    arrays = [x, np.array(n), np.array(1)]
    attributes = {"inverse": inverse, "onesided": onesided}
    worker = make_worker(one_layer("DFT", arrays, attributes, known=(1, 2), dynamic=(0,)), channel)
    (found,) = answers(worker, x0=x)
    expected = expected_of(x, 1, n, inverse, onesided)
    assert disagreement(found, expected) < (1e-5 if channel == "cpu" else 1e-4)


def test_errors_name_the_layer() -> None:
    x, one = np.zeros((1, 4, 2), np.float32), np.array(1)
    cases: tuple[tuple[str, list[np.ndarray | None], dict[str, Any], str], ...] = (
        ("DFT", [np.zeros((), np.float32)], {}, "takes a real signal"),
        ("DFT", [x, None, np.array(-1)], {}, "holds the parts of complex numbers"),
        ("DFT", [x, np.array(0)], {}, "a length of 0"),
        ("DFT", [x[:, :1]], {"inverse": 1, "onesided": 1}, "a length of 0"),
        ("DFT", [x, np.array([1, 2])], {}, "its dft_length must be one number"),
        ("STFT", [x[0, 0], one], {}, "takes a signal"),
        ("STFT", [x, one, None, np.array(5)], {}, "cannot take frames of 5"),
        ("STFT", [x, np.array(0)], {}, "every 0"),
        ("STFT", [x, one, x[0, :3, 0], np.array(4)], {}, "need a window of that length"),
        ("HannWindow", [np.array(-1)], {}, "a window of -1"),
        ("MelWeightMatrix", [one, one, one, -one, one], {}, "cannot make 1 bands"),
    )
    for name, arrays, attributes, message in cases:
        with pytest.raises(ShapeError, match=f"layer 'it' \\({name}\\): .*{message}"):
            run(name, arrays, attributes)
