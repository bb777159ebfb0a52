"""`TextureConverter`: converts textures and images to tensors and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from engine.api.textures.conversion_kernels import Conversion
from engine.api.textures.gl_conversion import to_tensor, to_texture
from engine.api.textures.host_conversion import HostConversions
from engine.api.textures.images import AnyImage, GLImage, HostImage, image_of
from engine.api.textures.staged_conversion import (
    ConversionCounters,
    StagedTensorData,
    counters,
    cpu_backend,
    deliveries,
)
from engine.api.textures.transform import TextureTransform
from engine.api.worker import Worker
from engine.backends.base import Backend, BackendType, DeviceBuffer
from engine.backends.gl.textures import TextureReader
from engine.backends.select import shared_backend
from engine.base.errors import InputError
from engine.base.spelling import SpellingType
from engine.device.cl.device import CLDevice
from engine.device.gl.create import default_context_if_current
from engine.device.gl.device import GLDevice
from engine.runtime.device_tensor_data import BufferTensorData, storage_of
from engine.runtime.tensor import Tensor

Place = Worker | BackendType | GLDevice | CLDevice | None
"""Where a tensor is wanted."""

_PLAIN = TextureTransform()


class TextureConverter(metaclass=SpellingType):
    """Converts images and textures to tensors and back. Every call enqueues and returns.

    An image is a moderngl texture or framebuffer, a gameglue `Texture` or `RenderTarget`, a pygame Surface,
    a Pillow image (to read only), or an array (rows, columns[, channels]) of uint8 from 0 to 255 or floats
    from 0 to 1. Between a texture and a tensor on the same GPU nothing leaves it: one draw or dispatch in the
    device's own context, ordered behind what the game has issued and before what it issues next.

    The first conversion of a kind compiles its kernel: do one of each while loading.
    """

    counters: ClassVar[ConversionCounters] = counters
    """What conversions cost so far; `print(TextureConverter.counters)`."""

    @staticmethod
    def to_tensor(
        image: Any,
        transform: TextureTransform | None = None,
        tensor: Tensor | None = None,
        *,
        slot: int | None = None,
        on: Place = None,
    ) -> Tensor:
        """Convert an image, or a sequence of images as a batch, to an NCHW or NHWC tensor.

        Args:
            image: what to convert; with a sequence, each becomes one entry of the batch.
            transform: how; by default as it is, three channels (one of a grey image) from 0 to 1.
            tensor: filled and returned instead of a new one; to convert every frame, give one. What the
                transform leaves open is taken from its shape. It moves to where the work is.
            slot: fill only this entry of `tensor`'s batch.
            on: where the tensor is wanted: the worker that will read it (its backend, and the size of its
                first input for what the transform leaves open), a `BackendType`, or a device. By default
                where the image is: GPU_COMPUTE (GPU_PIXEL before OpenGL 4.3) for textures, else the CPU.

        A texture wanted on the CPU or on OpenCL is converted by its own GPU and arrives through a readback
        that nobody waits for: `worker.schedule(tensor)` starts when it is there, usually a frame later.

        Raises:
            InputError: An argument is no image, or does not fit.
        """
        many = isinstance(image, list | tuple)
        images = [image_of(p) for p in (image if many else [image])]
        if not images:
            raise InputError("an empty batch of images")
        if slot is not None and (tensor is None or many):
            raise InputError("slot= puts one image into the batch of a tensor that is given as tensor=")
        how = transform or _PLAIN
        shape = _shape(how, images, tensor, slot, on)
        if tensor is not None and how.dtype != tensor.dtype.name:
            how = replace(how, dtype=tensor.dtype.name)
        textures = [p for p in images if isinstance(p, GLImage)]
        if textures and len(textures) < len(images):
            raise InputError("a batch is of textures on the GPU or of pixels on the host, not of both")
        backend = _backend(on, images[0], tensor)
        if textures and not _is_on(backend, textures[0].device):
            return _staged(textures, how, shape, tensor, slot)
        made, buffer = _target(backend, how, shape, tensor, slot)
        if textures:
            for number, texture in enumerate(textures):
                conversion = Conversion(texture.grid, how, shape, number if many else slot)
                to_tensor(backend, texture, conversion, buffer)
            counters.on_device += len(textures)
        else:
            _from_host(backend, [p for p in images if isinstance(p, HostImage)], how, shape, buffer, slot)
        return made

    @staticmethod
    def to_texture(
        tensor: Tensor, transform: TextureTransform | None = None, texture: Any = None, *, slot: int = 0
    ) -> Any:
        """Write image `slot` of a tensor into a texture, surface or array, and return it.

        Args:
            tensor: (batch, channels, rows, columns) or NHWC as the transform says; the batch, or that and the
                channels, may be missing. An output that is still being computed will do.
            transform: undone here: give the one that made the network's input, or another for its output.
            texture: what to write; None makes an RGBA texture of the tensor's size in the current context.
            slot: which entry of the batch.

        A tensor on the texture's own GPU is drawn there, now. Any other goes by way of the host: at once if
        its elements are available there, else when they are, by the next `poll` (which `App` makes every
        frame).
        """
        how = transform or _PLAIN
        if texture is None:
            texture = _new_texture(how, tensor)
        target = image_of(texture)
        data = tensor.available_data
        if (
            isinstance(target, GLImage)
            and isinstance(data, BufferTensorData)
            and _is_on(data.backend, target.device)
        ):
            to_texture(data.storage, Conversion(target.grid, how, tuple(tensor.shape), slot), target)
            counters.on_device += 1
        else:
            deliveries().send(tensor, how, slot, target, texture)
        return texture

    @staticmethod
    def render_to_texture(
        tensor: Tensor, target: Any, transform: TextureTransform | None = None, *, slot: int = 0
    ) -> None:
        """Write a tensor into a texture, render target or framebuffer; see `to_texture`.

        Args:
            tensor: The tensor.
            target: What to write.
            transform: How the tensor becomes an image.
            slot: Position in the tensor's batch to read.
        """
        TextureConverter.to_texture(tensor, transform, target, slot=slot)

    @staticmethod
    def render_to_screen(
        tensor: Tensor, transform: TextureTransform | None = None, screen: Any = None, *, slot: int = 0
    ) -> None:
        """Show a tensor on the whole screen.

        Args:
            tensor: The tensor.
            transform: How the tensor becomes an image.
            screen: A moderngl context, whose default framebuffer is the screen (by default the current one),
                or an `App` or its `graphics`, whose image of this frame is written, in `on_render_image` or
                `on_gui`.
            slot: Position in the tensor's batch to read.

        Raises:
            InputError: There is no screen.
        """
        screen = getattr(screen, "graphics", screen)
        if hasattr(screen, "picture"):
            TextureConverter.to_texture(tensor, transform, screen.picture, slot=slot)
            return
        ctx: Any = screen if screen is not None else default_context_if_current()
        if ctx is None or ctx.screen is None:
            raise InputError(
                "there is no screen: no moderngl context with a window is current; name a target"
            )
        texture, framebuffer = _screen_texture(ctx)
        TextureConverter.to_texture(tensor, transform, texture, slot=slot)
        ctx.copy_framebuffer(ctx.screen, framebuffer)

    @staticmethod
    def poll(texture: Any = None) -> int:
        """Write textures whose tensors have arrived; return how many are still pending. Never blocks.

        texture: count only those pending into this one, as it was given to `to_texture`.
        """
        pending = deliveries()
        pending.pump()
        return len(pending) if texture is None else pending.count(texture)


def _shape(
    how: TextureTransform, images: Sequence[AnyImage], tensor: Tensor | None, slot: int | None, on: Place
) -> tuple[int, ...]:
    """The tensor's shape, from the transform, the tensor that is given, the model, or the image."""
    grid = images[0].grid
    known: tuple[Any, ...] = (None, None, None, None)
    whose = ""
    if tensor is not None:
        given = tuple(tensor.shape)
        if len(given) != 4:
            raise InputError(f"tensor= needs four dimensions ({how.layout}), not {given}")
        known, whose = how.sizes(given), "the tensor"
    elif isinstance(on, Worker):
        item = next((i for i in on.model.inputs if i.shape is not None and len(i.shape) == 4), None)
        if item is not None and item.shape is not None:
            known, whose = how.sizes(item.shape), f"input '{item.name}'"
    count = len(images) if slot is None else 1
    own = {"channels": how.channels or len(how.swizzle) or None, "height": how.height, "width": how.width}
    default = {"channels": min(len(grid.order), 3), "height": grid.height, "width": grid.width}
    sizes = []
    for name, there in zip(own, known[1:], strict=True):
        asked = own[name]
        if isinstance(there, int) and asked is not None and asked != there:
            raise InputError(f"the transform asks for {name} {asked}, {whose} has {there}")
        sizes.append(asked or (there if isinstance(there, int) else default[name]))
    batch = count
    if tensor is not None:
        batch = known[0]
        if slot is None and batch != count:
            raise InputError(f"{count} images for a tensor with a batch of {batch}")
        if slot is not None and not 0 <= slot < batch:
            raise InputError(f"there is no slot {slot} in a batch of {batch}")
    return how.shape(batch, *sizes)


def _backend(on: Place, image: AnyImage, tensor: Tensor | None) -> Backend:
    """Where the conversion is to take place."""
    if isinstance(on, Worker):
        return on._native
    if isinstance(on, BackendType):
        if on is BackendType.CPU:
            return cpu_backend()
        return shared_backend(on, image.device if isinstance(image, GLImage) else None)
    if isinstance(on, CLDevice):
        return shared_backend(BackendType.GPU_COMPUTE, on)
    if on is None and tensor is not None:
        data = tensor.available_data
        if isinstance(data, BufferTensorData):
            return data.backend
    device = on if on is not None else image.device if isinstance(image, GLImage) else None
    if device is None:
        return cpu_backend()
    kind = BackendType.GPU_COMPUTE if device.info.supports_compute else BackendType.GPU_PIXEL
    return shared_backend(kind, device)


def _is_on(backend: Backend, device: GLDevice) -> bool:
    return isinstance(backend, TextureReader) and backend.device is device


def _target(
    backend: Backend, how: TextureTransform, shape: tuple[int, ...], tensor: Tensor | None, slot: int | None
) -> tuple[Tensor, DeviceBuffer]:
    """A tensor on a backend, and its buffer: a new one, or the given one, moved there."""
    elements, dtype = int(np.prod(shape)), np.dtype(how.dtype)
    if tensor is not None:
        data = tensor.available_data
        if isinstance(data, BufferTensorData) and _same(data.backend, backend):
            tensor.mark_changed()
            return tensor, data.storage
        with backend.entered():
            # All of it will be written, unless a slot is meant.
            kept = tensor.download_to_array() if slot is not None else None
            buffer = backend.create(elements, dtype, kept)
        tensor.replace_data(storage_of(backend)(backend, buffer, shape))
        tensor.mark_changed()
        return tensor, buffer
    with backend.entered():
        buffer = backend.create(elements, dtype)
    return Tensor.of(storage_of(backend)(backend, buffer, shape)), buffer


def _same(one: Backend, other: Backend) -> bool:
    """Whether a buffer of one may be written in the other's stream; GPU streams of a device are one."""
    return one is other or (one.name == other.name and not one.is_host and one.owner is other.owner)


def _from_host(
    backend: Backend,
    images: Sequence[HostImage],
    how: TextureTransform,
    shape: tuple[int, ...],
    buffer: DeviceBuffer,
    slot: int | None,
) -> None:
    conversions = HostConversions.of(backend)
    grid = images[0].grid
    counters.on_host += len(images)
    if all(p.grid == grid for p in images):
        pixels = [p.pixels() for p in images]
        joined = pixels[0] if len(pixels) == 1 else np.concatenate(pixels)
        together = replace(grid, batch=len(images)) if len(images) > 1 else grid
        conversions.to_tensor(backend, joined, Conversion(together, how, shape, slot), buffer)
        return
    for number, image in enumerate(images):
        conversion = Conversion(image.grid, how, shape, number)
        conversions.to_tensor(backend, image.pixels(), conversion, buffer)


def _staged(
    textures: Sequence[GLImage],
    how: TextureTransform,
    shape: tuple[int, ...],
    tensor: Tensor | None,
    slot: int | None,
) -> Tensor:
    """Convert on the textures' own device, and bring the result to the host without waiting."""
    if slot is not None:
        raise InputError(
            "slot= needs a tensor on the texture's GPU; convert the images of a batch in one call instead"
        )
    device = textures[0].device
    backend = shared_backend(BackendType.GPU_PIXEL, device)
    # A readback has the value as of its request, so the memory on the GPU can be reused at once.
    before = tensor._data if tensor is not None else None
    fits = isinstance(before, StagedTensorData) and before.fits(how, shape, device)
    kept = before.hand_on() if isinstance(before, StagedTensorData) and fits else None
    source, buffer = _target(backend, how, shape, kept, None)
    for number, texture in enumerate(textures):
        conversion = Conversion(texture.grid, how, shape, number if shape[0] > 1 else None)
        to_tensor(backend, texture, conversion, buffer)
    data = StagedTensorData(source)
    if tensor is None:
        return Tensor.of(data)
    tensor.replace_data(data)
    tensor.mark_changed()
    return tensor


def _new_texture(how: TextureTransform, tensor: Tensor) -> Any:
    ctx: Any = default_context_if_current()
    if ctx is None:
        raise InputError(
            "to_texture makes textures in moderngl's current context, and there is none; give a texture, a"
            " surface or an array to write"
        )
    _, _, height, width = how.sizes(tensor.shape)
    return ctx.texture((width, height), 4)


def _screen_texture(ctx: Any) -> tuple[Any, Any]:
    """A texture of the screen's size and its framebuffer, kept with the context."""
    kept = getattr(ctx, "_gameglue_screen", None)
    if kept is None or kept[0].size != ctx.screen.size:
        if kept is not None:
            kept[1].release()
            kept[0].release()
        texture = ctx.texture(ctx.screen.size, 4)
        kept = ctx._gameglue_screen = (texture, ctx.framebuffer(color_attachments=[texture]))
    return kept
