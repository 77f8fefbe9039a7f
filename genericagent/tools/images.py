"""Pictures for models that take them: recognised by their first bytes, measured by their header, shrunk if too large."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Literal

from ..errors import ToolError
from ..llm.blocks import Block

MAX_SIDE = 1568  # pixels; Anthropic scales larger images down itself (vision guide), others refuse them
MAX_BYTES = 5 << 20  # Anthropic's limit for one image
MAX_FILE = 100 << 20


def media_type(start: bytes) -> str | None:
    """The media type of a picture that begins with these bytes, None for anything else."""
    if start.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if start.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if start.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if start[:4] == b"RIFF" and start[8:12] == b"WEBP" else None


def is_image(path: Path) -> bool:
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return media_type(file.read(16)) is not None
    except OSError:
        return False  # the reading tool says what is wrong with it


def image_block(path: Path, takes_images: bool = True, max_side: int = MAX_SIDE) -> Block:
    """An image block of the file; for a model that takes no images a text block with its type and size.

    Raises ToolError when it is damaged, or too large and Pillow is not installed.
    """
    if path.stat().st_size > MAX_FILE:
        raise ToolError(f"{path} is too large for a picture: {path.stat().st_size} bytes")
    data = path.read_bytes()
    kind = media_type(data[:16])
    size = pixel_size(data) if kind else None
    if kind is None or size is None or 0 in size:
        raise ToolError(f"{path} is no readable picture (png, jpg, webp or gif)")
    if not takes_images:
        return {
            "type": "text",
            "text": f"[FILE] {kind}, {size[0]}x{size[1]} pixels, {len(data)} bytes; this model takes no images",
        }
    if max(size) > max_side or len(data) > MAX_BYTES:
        data, kind = _shrunk(path, max_side)
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": kind, "data": base64.b64encode(data).decode("ascii")},
    }


def pixel_size(data: bytes) -> tuple[int, int] | None:
    """(width, height) from the header, None when it is damaged."""
    kind = media_type(data[:16])
    if kind == "image/png" and len(data) >= 33:
        return _number(data[16:20], "big"), _number(data[20:24], "big")
    if kind == "image/gif" and len(data) >= 10:
        return _number(data[6:8]), _number(data[8:10])
    if kind == "image/webp" and len(data) >= 30:
        form = data[12:16]
        if form == b"VP8X":
            return _number(data[24:27]) + 1, _number(data[27:30]) + 1
        if form == b"VP8L":
            bits = _number(data[21:25])
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        return _number(data[26:28]) & 0x3FFF, _number(data[28:30]) & 0x3FFF
    return _jpeg_size(data) if kind == "image/jpeg" else None


def _number(data: bytes, order: Literal["big", "little"] = "little") -> int:
    return int.from_bytes(data, order)


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return _number(data[at + 7 : at + 9], "big"), _number(data[at + 5 : at + 7], "big")
        at += 2 + length
    return None


def _shrunk(path: Path, max_side: int) -> tuple[bytes, str]:
    import io

    try:
        from PIL import Image
    except ImportError:
        raise ToolError(
            f"{path} is larger than {max_side} pixels a side; to have it shrunk: pip install 'genericagent[images]'"
        ) from None
    try:
        with Image.open(path) as picture:
            picture.thumbnail((max_side, max_side))
            out = io.BytesIO()
            picture.convert("RGB").save(out, "JPEG", quality=85)
    except Exception as error:  # Pillow raises many kinds for damaged files
        raise ToolError(f"{path} is no readable picture: {error}") from None
    return out.getvalue(), "image/jpeg"
