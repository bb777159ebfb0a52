"""The minima of OpenGL's specification, for devices that pretend to have no more."""

from __future__ import annotations

from dataclasses import replace

from engine.device.gl.limits import LLVMPIPE_ROUNDS, GLLimits


def minimum(version_code: int) -> GLLimits:
    """The specification's minima for a version such as 330 or 430; for loops, those of drivers."""
    limits = GLLimits(
        max_texture_size=16384 if version_code >= 410 else 1024,
        max_texture_image_units=16,
        max_fragment_uniform_components=1024,
        max_loop_rounds=LLVMPIPE_ROUNDS,
    )
    if version_code < 430:
        return limits
    return replace(
        limits,
        max_storage_block_size=1 << (27 if version_code >= 450 else 24),
        max_compute_storage_blocks=8,
        max_storage_buffer_bindings=8,
        storage_buffer_offset_alignment=256,
        max_compute_group_count=(65535, 65535, 65535),
        max_compute_texture_image_units=16,
    )
