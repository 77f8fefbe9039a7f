"""Pictures: told by their bytes, whole or refused, never too large for the provider, and never a flood of bytes."""

from __future__ import annotations

import base64
import io
import os
import random
import struct
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from genericagent.errors import ToolError
from genericagent.tools import images
from genericagent.tools.images import image_block, is_image, media_type, pixel_size

KINDS = {"png": "image/png", "jpg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"}


def pillow() -> Any:
    return pytest.importorskip("PIL.Image")


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int, height: int, pixels: bytes | None = None) -> bytes:
    """A grey PNG made by hand; without `pixels` its image data are far too short."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(pixels if pixels is not None else b"\0" * 10))
    return b"\x89PNG\r\n\x1a\n" + head + body + chunk(b"IEND", b"")


def drawn(kind: str, size: tuple[int, int], mode: str = "RGB", **how: Any) -> bytes:
    out = io.BytesIO()
    pillow().new(mode, size, 200 if mode in "LP" else None).save(out, {"jpg": "JPEG"}.get(kind, kind), **how)
    return out.getvalue()


def decoded(block: dict[str, Any]) -> tuple[str, Any]:
    source = block["source"]
    assert block["type"] == "image" and source["type"] == "base64"
    return source["media_type"], pillow().open(io.BytesIO(base64.b64decode(source["data"])))


def put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.fixture
def p(tmp_path: Path) -> Path:
    return tmp_path / "picture"


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("size", [(1, 1), (7, 300), (1568, 20)])
def test_a_picture_is_sent_as_it_is(p: Path, kind: str, size: tuple[int, int]) -> None:
    data = drawn(kind, size)
    block: Any = image_block(put(p, data))  # C080
    assert is_image(p) and media_type(data[:16]) == KINDS[kind] and pixel_size(data) == size
    assert block["source"]["media_type"] == KINDS[kind]
    assert base64.b64decode(block["source"]["data"]) == data


@pytest.mark.parametrize(
    "kind, how", [("webp", {"lossless": True}), ("jpg", {"progressive": True}), ("webp", {"exif": b"Exif\0\0II*\0\x08\0\0\0\0\0"}), ("png", {"optimize": True})]
)  # fmt: skip
def test_every_form_of_header_is_measured(p: Path, kind: str, how: dict[str, Any]) -> None:
    data = drawn(kind, (123, 45), **how)
    assert pixel_size(data) == (123, 45)
    image_block(put(p, data))  # C080


def test_padding_and_bare_markers_in_a_jpeg_are_stepped_over() -> None:
    data = drawn("jpg", (12, 34))
    assert pixel_size(data[:2] + b"\xff\xff\xff\x01" + data[2:]) == (12, 34)


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("cut", [4, 12, 20, 40, 0.5, -20, -3])
def test_a_damaged_picture_is_refused_before_a_provider_does(p: Path, kind: str, cut: float) -> None:
    random.seed(1)
    image = pillow().frombytes("RGB", (64, 64), random.Random(1).randbytes(64 * 64 * 3))
    out = io.BytesIO()
    image.save(out, {"jpg": "JPEG"}.get(kind, kind))
    data = out.getvalue()
    put(p, data[: int(len(data) * cut) if isinstance(cut, float) else cut])
    with pytest.raises(ToolError, match="picture"):
        image_block(p)  # C080


@pytest.mark.parametrize(
    "data",
    [
        b"\x89PNG\r\n\x1a\n" + b"x" * 100, b"\xff\xd8\xff" + b"x" * 100, b"\xff\xd8\xff\xe0\0\0" * 50, b"GIF89a" + b"\0" * 20,
        b"RIFF\x20\0\0\0WEBPxxxx" + b"x" * 40, b"RIFF\x20\0\0\0WEBPVP8L" + b"x" * 40, png(0, 5), b"", b"GIF89a\1\0\1\0",
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", b"\0\0\0\5\0\0\0\5\10\0\0\0\0") + chunk(b"IEND", b""),
        png(5, 5)[:40] + b"\xff" + png(5, 5)[41:], b"plain text\n",
    ],
)  # fmt: skip
def test_what_only_begins_like_a_picture_is_refused(p: Path, data: bytes) -> None:
    begin = time.monotonic()
    with pytest.raises(ToolError, match="picture"):
        image_block(put(p, data))
    assert time.monotonic() - begin < 5  # C080


@pytest.mark.slow
@pytest.mark.parametrize("size", [(1569, 10), (10, 1569), (4000, 3000)])
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_large_picture_is_shrunk(p: Path, kind: str, size: tuple[int, int]) -> None:
    name, image = decoded(image_block(put(p, drawn(kind, size))))
    assert name == "image/jpeg" and max(image.size) == 1568  # C080
    assert abs(image.width * size[1] - image.height * size[0]) <= max(size) * 2


def test_one_of_too_many_bytes_is_made_smaller(p: Path) -> None:
    image = pillow().frombytes("RGB", (1500, 1500), random.Random(1).randbytes(1500 * 1500 * 3))
    image.save(p, "png")
    assert p.stat().st_size > images.MAX_BYTES
    block: Any = image_block(p)
    assert len(block["source"]["data"]) <= 5 << 20  # C080


def test_what_is_transparent_becomes_white_and_rotation_is_kept(p: Path) -> None:
    _, image = decoded(image_block(put(p, drawn("png", (2000, 10), "RGBA"))))
    assert image.getpixel((5, 5)) == (255, 255, 255)
    exif = pillow().Exif()
    exif[0x0112] = 6  # turned by a quarter
    _, image = decoded(image_block(put(p, drawn("jpg", (2000, 1000), exif=exif))))
    assert image.size == (784, 1568)


@pytest.mark.parametrize(
    "mode, kind", [("P", "png"), ("L", "png"), ("LA", "png"), ("CMYK", "jpg"), ("1", "png"), ("I;16", "png")]
)
def test_every_colour_mode_can_be_shrunk(p: Path, mode: str, kind: str) -> None:
    pillow().new(mode, (1600, 20)).save(p, "JPEG" if kind == "jpg" else kind)
    assert decoded(image_block(p))[1].size[0] == 1568


def test_without_pillow_a_large_one_is_refused_with_the_hint(p: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large, small = drawn("png", (1600, 20)), drawn("png", (16, 20))
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ToolError, match=r"1600x20 pixels.*pip install 'Pillow>"):
        image_block(put(p, large))  # C080
    assert image_block(put(p, small))["type"] == "image"
    with pytest.raises(ToolError, match=r"bytes.*pip install"):
        image_block(put(p, png(10, 10, random.Random(1).randbytes(6 << 20))))


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_model_without_images_gets_type_and_size(p: Path, kind: str) -> None:
    data = drawn(kind, (1700, 30))
    block = image_block(put(p, data), takes_images=False)
    assert block == {
        "type": "text",
        "text": f"[FILE] {KINDS[kind]}, 1700x30 pixels, {len(data)} bytes; this model takes no images",
    }  # C080
    block = image_block(put(p, data[:12]), takes_images=False)
    assert "damaged" in block["text"] and KINDS[kind] in block["text"]


@pytest.mark.parametrize("size", [(50_000, 50_000), (2**31 - 1, 2**31 - 1), (100_000_000, 1), (10_000, 10_000)])
def test_a_decompression_bomb_is_refused_unopened(p: Path, size: tuple[int, int]) -> None:
    begin = time.monotonic()
    with pytest.raises(ToolError, match="too large"):
        image_block(put(p, png(*size)))
    assert time.monotonic() - begin < 1  # C080
    assert "pixels" in image_block(p, takes_images=False)["text"]


def test_pixels_that_are_not_there_are_an_error(p: Path) -> None:
    with pytest.raises(ToolError, match="no readable picture"):
        image_block(put(p, png(3000, 3000)))  # C080


def test_a_huge_file_is_not_read(p: Path) -> None:
    with put(p, drawn("png", (20, 30))).open("r+b") as file:
        file.truncate(5 << 30)
    with pytest.raises(ToolError, match="too large"):
        image_block(p)  # C080
    assert "20x30" in image_block(p, takes_images=False)["text"]


def test_what_is_no_file_is_no_picture(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to("nowhere")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "none.png", tmp_path / "dangling", Path("/dev/zero")):
        assert not is_image(path)
        with pytest.raises(ToolError):
            image_block(path)  # C079
    for name in ("x" * 300, "a\0b"):
        assert not is_image(tmp_path / name)
        with pytest.raises(ToolError):
            image_block(tmp_path / name)
