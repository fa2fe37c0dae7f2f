"""Streaming decompression of event logs in Spark's formats.

The first bytes of a file determine its format; the file name does not matter. Spark writes zstd streams, and the
formats of lz4-java's ``LZ4BlockOutputStream`` and snappy-java's ``SnappyOutputStream``. A decompressed piece has at
most :data:`_MOST` bytes.
"""

from __future__ import annotations

import gzip
import importlib
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, TypeAlias

from spark_events.errors import MissingExtraError, SparkEventsError

#: Callback that receives a description of the damage; reading then continues after the damage.
OnDamage: TypeAlias = Callable[[str], None]

_PIECE = 1 << 18
_ZIP = b"PK\x03\x04"
_MOST = 1 << 26
_CUT_OFF = "the file ends in the middle of a compressed block"


class CutOffError(SparkEventsError):
    """The file ends in the middle of a compressed block."""


class DamagedLogError(SparkEventsError):
    """The remaining data of the file cannot be decompressed."""


class ArchiveError(DamagedLogError):
    """The file is a zip archive."""


def pieces(file: IO[bytes], on_damage: OnDamage, skip: int = 0) -> Iterator[bytes]:
    """Yield the content of a file in pieces, decompressed if necessary.

    Args:
        file: a buffered file object, positioned at the beginning.
        on_damage: called for each skipped block.
        skip: number of bytes of the content that are not wanted; not even read if the file is not compressed.

    Raises:
        CutOffError: when the file ends in the middle of a block; raised after the last piece.
        DamagedLogError: when the remaining data cannot be decompressed.
        MissingExtraError: when the library for this compression is not installed.
    """
    start = file.read(10)
    file.seek(0)
    for magic, read in _READERS:
        if start.startswith(magic):
            return _after(read(file, on_damage), skip)
    if skip:
        file.seek(skip)
    return _plain(file, on_damage)


def _after(found: Iterator[bytes], skip: int) -> Iterator[bytes]:
    for piece in found:
        if skip < len(piece):
            yield piece[skip:]
        skip = max(0, skip - len(piece))


def _plain(file: IO[bytes], _: OnDamage) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece


def _lzf(_: IO[bytes], __: OnDamage) -> Iterator[bytes]:
    raise DamagedLogError("compressed with lzf, which is not supported; decompress the file first")


def _zip(_: IO[bytes], __: OnDamage) -> Iterator[bytes]:
    raise ArchiveError("a zip archive, which is not supported; extract its files first")


def _gzip(file: IO[bytes], on_damage: OnDamage) -> Iterator[bytes]:
    for piece in _stream(file, gzip.GzipFile(fileobj=file), (zlib.error, gzip.BadGzipFile)):
        if piece.startswith(_ZIP):
            yield from _zip(file, on_damage)
        yield piece


def _zstd(file: IO[bytes], _: OnDamage) -> Iterator[bytes]:
    zstd = _library("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd", "zstd")
    return _stream(file, zstd.ZstdFile(file), zstd.ZstdError)


def _stream(file: IO[bytes], stream: Any, errors: Any) -> Iterator[bytes]:
    """Yield pieces of a decompressing file object from the standard library."""
    try:
        while piece := stream.read1(_PIECE):
            yield piece
    except EOFError:
        raise CutOffError(_CUT_OFF) from None
    except errors as error:
        raise DamagedLogError(
            f"skipped the data after about byte {file.tell()}, which cannot be decompressed ({error})"
        ) from None


_LZ4_BLOCK = b"LZ4Block"
# Fields after the magic bytes: token, compressed length, uncompressed length and checksum.
_LZ4_HEADER = struct.Struct("<BiiI")
_LZ4_RAW = 0x10


def _lz4_blocks(file: IO[bytes], on_damage: OnDamage) -> Iterator[bytes]:
    block = _library("lz4.block", "lz4")
    while magic := file.read(len(_LZ4_BLOCK)):
        at = file.tell() - len(magic)
        token, packed, size, _ = _LZ4_HEADER.unpack(_exactly(file, _LZ4_HEADER.size))
        if magic != _LZ4_BLOCK or not 0 <= packed <= _MOST or not 0 <= size <= _MOST:
            raise DamagedLogError(f"skipped the data from byte {at} on, because no LZ4 block begins there")
        data = _exactly(file, packed)
        if token & 0xF0 == _LZ4_RAW:
            yield data
            continue
        try:
            # An empty block ends a stream; another stream may follow.
            yield block.decompress(data, uncompressed_size=size) if size else b""
        except block.LZ4BlockError:
            on_damage(f"skipped the block at byte {at}, which cannot be decompressed")


_SNAPPY_JAVA = b"\x82SNAPPY\x00"
_SNAPPY_JAVA_HEADER = 16


def _snappy_java(file: IO[bytes], on_damage: OnDamage) -> Iterator[bytes]:
    snappy = _library("cramjam", "snappy").snappy
    while length := file.read(4):
        at = file.tell() - 4
        if len(length) < 4:
            raise CutOffError(_CUT_OFF)
        if _SNAPPY_JAVA.startswith(length):
            # Skip the header of a stream; a file may contain several streams, one after another.
            _exactly(file, _SNAPPY_JAVA_HEADER - 4)
            continue
        size = int.from_bytes(length, "big", signed=True)
        if not 0 <= size <= _MOST:
            raise DamagedLogError(f"skipped the data from byte {at} on, because no snappy block begins there")
        data = _exactly(file, size)
        try:
            if snappy.decompress_raw_len(data) <= _MOST:
                yield bytes(snappy.decompress_raw(data))
                continue
        except MemoryError:
            raise
        except Exception:
            # Catch every error, because cramjam raises its own and the system's error types.
            pass
        on_damage(f"skipped the block at byte {at}, which cannot be decompressed")


def _exactly(file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise CutOffError(_CUT_OFF)
    return data


def _library(module: str, compression: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtraError(
            f"compressed with {compression}, whose library is not installed; run: pip install 'spark-events[replay]'"
        ) from None


_READERS: tuple[tuple[bytes, Callable[[IO[bytes], OnDamage], Iterator[bytes]]], ...] = (
    (b"\x1f\x8b", _gzip),
    (b"\x28\xb5\x2f\xfd", _zstd),
    (_LZ4_BLOCK, _lz4_blocks),
    (_SNAPPY_JAVA, _snappy_java),
    (b"ZV", _lzf),
    (_ZIP, _zip),
)
