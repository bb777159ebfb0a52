"""`ImageNetwork`: runs a network on a game's images in slices, and keeps the newest result."""

from __future__ import annotations

import math
import time
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from engine import (
    BackendType,
    InputError,
    Model,
    Schedule,
    Tensor,
    TextureConverter,
    TextureTransform,
    Worker,
)
from gameglue.graphics.device import RenderTarget, Texture
from gameglue.scripting.coroutines import NextFrame

if TYPE_CHECKING:
    from gameglue.host.app import App

Size = tuple[int, int]
"""Width and height in pixels."""

_BUDGET_MS, _SLOW_BUDGET_MS = 8.0, 24.0
_POLL_SECONDS = 2e-4
_KEPT = 60
_IN, _OUT = TextureTransform(resampling="area"), TextureTransform()


class ImageNetwork:
    """Runs a network on a game's images, a slice each frame, and keeps the newest result.

    Call `update(picture)` once a frame, in `on_render_image` or `on_gui`, and draw `picture`. One image is
    processed at a time; when its result is ready, the next `update` takes a new one. Nothing blocks: the
    network is enqueued in slices of `budget_ms`, and takes as many frames as it needs. On a fast graphics
    card the result is ready in the same frame. Where worker and game share a GPU, images stay on it; to and
    from the CPU and OpenCL they are copied asynchronously.

        self.network = ImageNetwork(self.app, worker, (320, 240), (640, 480))   # in awake
        self.network.update(self.small)                                           # in on_gui
        self.app.gui.image(self.network.picture or self.small, 0, 0, 640, 480)

    In a deterministic app, an image arrives `app.inference.latency_frames` frames after `update`, and that
    frame waits for it if it is late. Without OpenGL every method may be called, and there is never a result.

    Attributes:
        budget_ms: Milliseconds of the device's time that the network takes of each frame.
    """

    def __init__(
        self,
        app: App,
        worker: Worker,
        input_size: Size,
        output_size: Size | None = None,
        *,
        budget_ms: float | None = None,
        transform: TextureTransform | None = None,
        transform_out: TextureTransform | None = None,
    ) -> None:
        """Make the network; `update` starts it.

        Args:
            app: whose images they are.
            worker: runs a model with one input, (1, channels, rows, columns), and such an output, the first.
                It stays its owner's: `release` does not dispose it.
            input_size: of the network's input, in pixels (width, height); images are scaled to it.
            output_size: of what the network makes of it; by default the same.
            budget_ms: of a frame for the network, in milliseconds of the device's time; at least a part is
                enqueued each frame. By default 8, and 24 where the processor draws, whose frames are long.
            transform: how images become tensors; by default as `TextureTransform(resampling="area")`.
            transform_out: how outputs become images; by default as `TextureTransform()`.

        Raises:
            InputError: The network does not take and give such images.
        """
        self._app = app
        self._how_in, self._how_out = transform or _IN, transform_out or _OUT
        if budget_ms is None:
            budget_ms = _SLOW_BUDGET_MS if app.graphics.is_software else _BUDGET_MS
        self.budget_ms = budget_ms
        self.picture: RenderTarget | None = None
        """The newest result, valid until the next one; `None` before the first."""
        self.count = 0
        """How many results there have been."""
        self.copies_through_host = 0
        """How many times an image went by way of the host, down or up; 0 where the worker's GPU draws."""
        self._waits: deque[tuple[int, float]] = deque(maxlen=_KEPT)
        self._finished_at: deque[float] = deque(maxlen=_KEPT)
        self._canvas: RenderTarget | None = None
        self._tensor: Tensor | None = None
        self._tensor_for: tuple[Worker, Size] | None = None
        self._schedule: Schedule | None = None
        self._is_arriving = False
        self._began = (0, 0.0)
        self._error: Exception | None = None
        _check_sizes(input_size, output_size or input_size)
        _check_model(worker.model, self._how_in, input_size, self._how_out, output_size or input_size)
        self._worker, self._input_size, self._output_size = worker, input_size, output_size or input_size
        self._beside = app.start_coroutine(_advance_each_frame(weakref.ref(self)))

    # -- what it works with ---------------------------------------------------------------------

    @property
    def worker(self) -> Worker:
        """The worker for the next image; set it to change the network at any time.

        Raises:
            InputError: The network does not take and give images of these sizes.
        """
        return self._worker

    @worker.setter
    def worker(self, worker: Worker) -> None:
        if worker is not self._worker:
            _check_model(worker.model, self._how_in, self._input_size, self._how_out, self._output_size)
            self._worker = worker

    @property
    def input_size(self) -> Size:
        """Width and height of the next image's input, in pixels."""
        return self._input_size

    @property
    def output_size(self) -> Size:
        """Width and height of the next result, in pixels."""
        return self._output_size

    def resize(self, input_size: Size, output_size: Size | None = None) -> None:
        """Change the sizes of the next image.

        Raises:
            InputError: The network does not take these sizes.
        """
        sizes = input_size, output_size or input_size
        if sizes != (self._input_size, self._output_size):
            _check_sizes(*sizes)
            _check_model(self._worker.model, self._how_in, sizes[0], self._how_out, sizes[1])
            self._input_size, self._output_size = sizes

    # -- every frame ----------------------------------------------------------------------------

    def update(self, source: RenderTarget | Texture) -> None:
        """Start on `source` if no image is being processed. Call it once a frame, when `source` is drawn.

        An image in progress continues by itself, before each frame's drawing. Where a graphics card draws, a
        image's first part is enqueued here, at once; where the processor does, it would have to wait for
        what the frame draws. Raises what ended an image, such as `DisposedError`, or `InputError` for an
        output of another size than `output_size`; the next call starts over.
        """
        if self.is_busy and self._worker.backend_type is BackendType.CPU:
            # Its job threads have worked while the frame was drawn: an image may be finished by now.
            self.advance()
        is_free = self._error is None and not self.is_busy and not self._beside.is_done()
        if is_free and source.texture is not None:
            self._begin(source)
            if not self._app.graphics.is_software:
                self.advance()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    @property
    def is_busy(self) -> bool:
        """Whether an image is being processed, so that `update` starts no other."""
        return self._schedule is not None or self._is_arriving

    def _begin(self, source: RenderTarget | Texture) -> None:
        """Convert `source` to the input tensor, asynchronously if on another device, and begin a schedule."""
        if self._canvas is None or self._canvas.size != self._output_size:
            if self._canvas is not None:
                self._canvas.release()
            self._canvas = self._app.graphics.render_target(self._output_size)
        how = replace(self._how_in, width=self._input_size[0], height=self._input_size[1])
        if self._tensor_for != (self._worker, self._input_size):
            self._forget_tensor()
            self._tensor_for = self._worker, self._input_size
        before = TextureConverter.counters.staged_down
        self._tensor = TextureConverter.to_tensor(source, how, self._tensor, on=self._worker)
        self.copies_through_host += TextureConverter.counters.staged_down - before
        self._schedule = self._worker.schedule_iterable(self._tensor)
        self._began = self._app.time.frame_count, time.perf_counter()

    def _advance(self, budget_ms: float) -> None:
        """Enqueue what fits into the budget, and take the image when it is there."""
        if self._schedule is not None:
            self._schedule.advance(budget_ms, force=True)
            if self._schedule.is_done:
                self._deliver(self._schedule.output())
        if self._is_arriving and TextureConverter.poll(self._canvas) == 0:
            self._finish()

    def _wait_until_due(self) -> None:
        """Wait for the image in the frame in which it is due, and do not take it before."""
        while (
            self.is_busy and self._app.time.frame_count >= self._began[0] + self._app.inference.latency_frames
        ):
            self._advance(math.inf)
            time.sleep(_POLL_SECONDS)

    def _deliver(self, output: Tensor) -> None:
        """Render the output tensor to the result texture, once its shape is known."""
        shape = output.shape_or_none
        if shape is None:
            return
        *_, height, width = self._how_out.sizes(shape)
        if (width, height) != self._canvas_size:
            raise InputError(
                f"the network gave {tuple(shape)}, an image of {width} x {height}; output_size says "
                f"{self._canvas_size[0]} x {self._canvas_size[1]}: give the size that it has"
            )
        before = TextureConverter.counters.on_device
        TextureConverter.render_to_texture(output, self._canvas, self._how_out)
        self.copies_through_host += TextureConverter.counters.on_device == before
        self._schedule, self._is_arriving = None, True

    @property
    def _canvas_size(self) -> Size:
        assert self._canvas is not None
        return self._canvas.size

    def _finish(self) -> None:
        now, (frame, began) = time.perf_counter(), self._began
        self._waits.append((self._app.time.frame_count - frame, 1e3 * (now - began)))
        self._finished_at.append(now)
        self._is_arriving = False
        self.count += 1
        self.picture, self._canvas = self._canvas, self.picture

    def advance(self) -> None:
        """Advance pending work. The app calls it in every frame; call it again to take an image earlier."""
        try:
            if self._app.deterministic:
                self._wait_until_due()
            else:
                self._advance(self.budget_ms)
        except Exception as error:  # noqa: BLE001 - belongs to who calls update, where it is raised
            self._error = error
            self._drop()

    # -- figures --------------------------------------------------------------------------------

    @property
    def latency_ms(self) -> float:
        """Median time from `update` to the result, in milliseconds; 0 before the first."""
        return median(ms for _, ms in self._waits) if self._waits else 0.0

    @property
    def latency_frames(self) -> float:
        """Median number of frames from `update` to the result; 0 if it arrives in the same frame."""
        return median(frames for frames, _ in self._waits) if self._waits else 0.0

    @property
    def images_per_second(self) -> float:
        """Results per second, over the latest ones."""
        times = self._finished_at
        return (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else 0.0

    # -- the end --------------------------------------------------------------------------------

    def _drop(self) -> None:
        """Cancel pending work."""
        if self._schedule is not None:
            self._schedule.cancel()
        self._schedule, self._is_arriving = None, False

    def _forget_tensor(self) -> None:
        if self._tensor is not None:
            self._tensor.dispose()
        self._tensor = self._tensor_for = None

    def release(self) -> None:
        """Free the images and cancel the one in progress; there are no more results."""
        self._beside.stop()
        self._drop()
        self._forget_tensor()
        for target in (self.picture, self._canvas):
            if target is not None:
                target.release()
        self.picture = self._canvas = None


def _advance_each_frame(holder: weakref.ref[ImageNetwork]) -> Iterator[NextFrame]:
    """Runs in every frame before it draws, until the network is dropped."""
    while (network := holder()) is not None:
        network.advance()
        del network
        yield NextFrame()


def _check_sizes(*sizes: Size) -> None:
    for size in sizes:
        if min(size) < 1:
            raise InputError(f"an image needs a width and a height of at least 1, not {size}")


def _check_model(
    model: Model, how_in: TextureTransform, input_size: Size, how_out: TextureTransform, output_size: Size
) -> None:
    """Raise `InputError`, which names the shape, for a model that does not take and give such images."""
    if len(model.inputs) != 1:
        shapes = ", ".join(f"'{item.name}' {_shape_text(item.shape)}" for item in model.inputs) or "none"
        raise InputError(f"an image network has one input; this one has {len(model.inputs)}: {shapes}")
    item, output = model.inputs[0], model.outputs[0]
    if item.dtype.name != how_in.dtype:
        raise InputError(
            f"input '{item.name}' {_shape_text(item.shape)} has dtype {item.dtype.name}, images are"
            f" converted to {how_in.dtype}; give transform=TextureTransform(dtype=...) if it takes images"
        )
    _check_image(f"input '{item.name}'", item.shape, how_in, "input_size", input_size, needs_all=True)
    _check_image(f"output '{output.name}'", output.shape, how_out, "output_size", output_size)


def _check_image(
    whose: str,
    shape: tuple[int | str | None, ...] | None,
    how: TextureTransform,
    what: str,
    size: Size,
    needs_all: bool = False,
) -> None:
    if shape is None:
        return
    axes = "1, rows, columns, channels" if how.is_channels_last else "1, channels, rows, columns"
    wanted, subject = f"one image ({axes})", f"{whose} has the shape {_shape_text(shape)}"
    if not (len(shape) == 4 or (2 <= len(shape) <= 4 and not needs_all)):
        raise InputError(f"{subject}; it has to be {wanted}")
    batch, channels, height, width = how.sizes(shape)
    if (isinstance(batch, int) and batch != 1) or (isinstance(channels, int) and not 1 <= channels <= 4):
        raise InputError(f"{subject}; it has to be {wanted}, with 1 to 4 channels")
    for declared, asked in ((width, size[0]), (height, size[1])):
        if isinstance(declared, int) and declared != asked:
            raise InputError(
                f"{subject}, an image of {width} x {height} (width x height); "
                f"{what} says {size[0]} x {size[1]}"
            )


def _shape_text(shape: tuple[int | str | None, ...] | None) -> str:
    """A shape as a message shows it."""
    return "(unknown)" if shape is None else f"({', '.join('?' if d is None else str(d) for d in shape)})"
