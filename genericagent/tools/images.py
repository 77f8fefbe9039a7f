"""Pictures for models that take them: recognised by their first bytes, measured by their header, shrunk if too large."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from zlib import crc32

from ..errors import ToolError
from ..extras import EXTRAS, install_command
from ..llm.blocks import Block, text
from .files import _content, _open, _regular

if TYPE_CHECKING:
    from ..safety.confine import Confinement

MAX_SIDE = 1568  # pixels; Anthropic scales larger images down itself (vision guide), others refuse them
MAX_BYTES = (5 << 20) * 3 // 4  # Anthropic's limit for one image, 5 MB, counts its base64 text
MAX_FILE = 100 << 20
MAX_PIXELS = 89_000_000  # just below where Pillow begins to warn of a decompression bomb; as RGB 267 MB


def media_type(start: bytes) -> str | None:
    """The media type of a picture that begins with these bytes, None for anything else."""
    if start.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if start.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if start.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if start[:4] == b"RIFF" and start[8:12] == b"WEBP" else None


def is_image(path: Path, *, within: Confinement | None = None) -> bool:
    try:
        if within is None and not path.is_file():
            return False
        with _open(path, within) as file:
            return media_type(file.read(16)) is not None
    except (OSError, ValueError, ToolError):
        return False  # the reading tool says what is wrong with it


def image_block(
    path: Path, takes_images: bool = True, max_side: int = MAX_SIDE, *, within: Confinement | None = None
) -> Block:
    """An image block of the file; for a model that takes no images a text block with its type and size.

    Raises ToolError when it is damaged (a provider would refuse the whole conversation), is far too large, or is too
    large and Pillow is not installed.
    """
    bytes_ = _regular(path, within).st_size
    data = _content(path, within) if bytes_ <= MAX_FILE else _start(path, within)
    return data_block(str(path), data, takes_images, max_side, bytes_)


def data_block(
    path: str, data: bytes, takes_images: bool = True, max_side: int = MAX_SIDE, bytes_: int | None = None
) -> Block:
    """The same of a picture's bytes; `path` is its name, `bytes_` its size where `data` is only its beginning."""
    bytes_ = len(data) if bytes_ is None else bytes_
    kind, size = media_type(data[:16]), pixel_size(data)
    if kind and not takes_images:
        pixels = f"{size[0]}x{size[1]} pixels" if size else "damaged"
        return text(f"[FILE] {kind}, {pixels}, {bytes_} bytes; this model takes no images")
    if bytes_ > MAX_FILE:
        raise ToolError(f"{path} is too large for a picture: {bytes_} bytes")
    if kind is None:
        raise ToolError(f"{path} is no readable picture (png, jpg, webp or gif)")
    if size is None or 0 in size or not _whole(data, kind):
        raise ToolError(f"{path} is a damaged picture: {kind}, {bytes_} bytes")
    if size[0] * size[1] > MAX_PIXELS:
        raise ToolError(f"{path} is too large for a picture: {size[0]}x{size[1]} pixels")
    if max(size) > max_side or len(data) > MAX_BYTES:
        data, kind = _shrunk(path, data, f"{size[0]}x{size[1]} pixels, {bytes_} bytes", max_side)
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": kind, "data": base64.b64encode(data).decode("ascii")},
    }


def _start(path: Path, within: Confinement | None) -> bytes:
    try:
        with _open(path, within) as file:
            return file.read(1 << 20)
    except OSError as error:
        raise ToolError(f"cannot read {path}: {error.strerror or error}") from None


def _whole(data: bytes, kind: str) -> bool:
    """Whether the picture goes on to its end, as far as its structure tells."""
    if kind == "image/png":
        return _whole_png(data)
    if kind == "image/jpeg":
        return b"\xff\xd9" in data[data.rfind(b"\xff\xda") :] and b"\xff\xda" in data
    if kind == "image/gif":
        return data.rstrip(b"\0").endswith(b";")
    return _number(data[4:8]) + 8 <= len(data) + 1  # some writers leave out the last padding byte


def _whole_png(data: bytes) -> bool:
    at, seen = 8, False
    while at + 12 <= len(data):
        length, name = _number(data[at : at + 4], "big"), data[at + 4 : at + 8]
        end = at + 12 + length
        if end > len(data) or crc32(data[at + 4 : end - 4]) != _number(data[end - 4 : end], "big"):
            return False
        if name == b"IEND":
            return seen
        seen, at = seen or name == b"IDAT", end
    return False


def pixel_size(data: bytes) -> tuple[int, int] | None:
    """(width, height) from the header, None when it is damaged."""
    kind = media_type(data[:16])
    if kind == "image/png" and len(data) >= 33 and data[12:16] == b"IHDR":
        return _number(data[16:20], "big"), _number(data[20:24], "big")
    if kind == "image/gif" and len(data) >= 13:
        return _number(data[6:8]), _number(data[8:10])
    if kind == "image/webp" and len(data) >= 30:
        return _webp_size(data)
    return _jpeg_size(data) if kind == "image/jpeg" else None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    form = data[12:16]
    if form == b"VP8X":
        return _number(data[24:27]) + 1, _number(data[27:30]) + 1
    if form == b"VP8L" and data[20] == 0x2F:
        bits = _number(data[21:25])
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if form == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        return _number(data[26:28]) & 0x3FFF, _number(data[28:30]) & 0x3FFF
    return None


def _number(data: bytes, order: Literal["big", "little"] = "little") -> int:
    return int.from_bytes(data, order)


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # padding
            at += 1
            continue
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return _number(data[at + 7 : at + 9], "big"), _number(data[at + 5 : at + 7], "big")
        bare = marker == 0x01 or 0xD0 <= marker <= 0xD8  # no length follows
        at += 2 if bare else 2 + _number(data[at + 2 : at + 4], "big")
    return None


def _shrunk(path: str, data: bytes, what: str, max_side: int) -> tuple[bytes, str]:
    """(the picture as JPEG with no side above `max_side`, its media type)."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise ToolError(
            f"{path} is too large to be shown as it is ({what}; at most {max_side} pixels a side and {MAX_BYTES} bytes); "
            f"to have it shrunk: {install_command(*EXTRAS['images'])}"
        ) from None
    try:
        with Image.open(io.BytesIO(data)) as opened:
            if opened.width * opened.height > MAX_PIXELS:  # the header told something else
                raise ToolError(f"{path} is too large for a picture")
            opened.draft("RGB", (max_side, max_side))  # a JPEG is decoded smaller at once
            picture = ImageOps.exif_transpose(opened)
            picture.thumbnail((max_side, max_side))
            if picture.has_transparency_data:
                picture = picture.convert("RGBA")
                paper = Image.new("RGBA", picture.size, "white")  # else what is transparent turns black
                picture = Image.alpha_composite(paper, picture)
            out = io.BytesIO()
            picture.convert("RGB").save(out, "JPEG", quality=85)
    except ToolError:
        raise
    except Exception as error:  # Pillow raises many kinds for damaged files
        raise ToolError(f"{path} is no readable picture: {error}") from None
    return out.getvalue(), "image/jpeg"
