"""Streaming decompression of event logs in Spark's formats.

The first bytes of a file determine its format; its name does not matter. Spark writes zstd streams and the formats of
its libraries: lz4-java's ``LZ4BlockOutputStream`` and snappy-java's ``SnappyOutputStream``. The standard frames of lz4
and snappy are read as well. A decompressed piece has at most :data:`_MOST` bytes.
"""

from __future__ import annotations

import gzip
import importlib
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, TypeAlias

from spark_events.errors import MissingExtraError, SparkEventsError

#: Called with a description of damage; reading continues after the damage.
Complain: TypeAlias = Callable[[str], None]

_PIECE = 1 << 18
_MOST = 1 << 26


class CutOffError(SparkEventsError):
    """The file ends in the middle of a compressed block."""


class DamagedLogError(SparkEventsError):
    """The rest of the file cannot be decompressed."""


def pieces(file: BinaryIO, complain: Complain) -> Iterator[bytes]:
    """Return the text of a file in pieces, decompressed if necessary.

    Args:
        file: opened at its beginning, buffered.
        complain: called for each damaged block that is skipped.

    Raises:
        CutOffError: at the end, when the file ends in the middle of a block.
        DamagedLogError: when the rest cannot be decompressed.
        MissingExtraError: when the library for this compression is not installed.
    """
    start = file.read(10)
    file.seek(0)
    for magic, read in _READERS:
        if start.startswith(magic):
            return read(file, complain)
    return _plain(file, complain)


def _plain(file: BinaryIO, _: Complain) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece


def _lzf(_: BinaryIO, __: Complain) -> Iterator[bytes]:
    raise DamagedLogError("compressed with lzf, which is not supported; decompress the file first")


def _gzip(file: BinaryIO, _: Complain) -> Iterator[bytes]:
    stream = gzip.GzipFile(fileobj=file)
    while True:
        try:
            piece = stream.read1(_PIECE)
        except EOFError:
            raise CutOffError("the file ends in the middle of a compressed block") from None
        except (zlib.error, gzip.BadGzipFile) as error:
            raise DamagedLogError(
                f"the rest, from about byte {file.tell()}, cannot be decompressed ({error})"
            ) from None
        if not piece:
            return
        yield piece


def _zstd(file: BinaryIO, _: Complain) -> Iterator[bytes]:
    name = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    zstd = _library(name, "zstd")
    return _frames(file, zstd.ZstdDecompressor, zstd.ZstdError)


def _lz4_frame(file: BinaryIO, _: Complain) -> Iterator[bytes]:
    return _frames(file, _library("lz4.frame", "lz4").LZ4FrameDecompressor, RuntimeError)


def _frames(file: BinaryIO, decompressor: Callable[[], Any], error_type: type[Exception]) -> Iterator[bytes]:
    """Decompress consecutive frames with a decompressor that has the interface of the standard library's."""
    rest = b""
    while data := rest or file.read(_PIECE):
        stream = decompressor()
        rest = b""
        while not stream.eof:
            try:
                piece = stream.decompress(data, _PIECE)
            except error_type as error:
                raise DamagedLogError(
                    f"the rest, from about byte {file.tell()}, cannot be decompressed ({error})"
                ) from None
            if piece:
                yield piece
            data = b""
            if stream.needs_input and not stream.eof:
                data = file.read(_PIECE)
                if not data:
                    raise CutOffError("the file ends in the middle of a compressed block")
        rest = stream.unused_data or b""


_LZ4_BLOCK = b"LZ4Block"
# Token, compressed length, uncompressed length and checksum; they follow the magic bytes.
_LZ4_HEADER = struct.Struct("<BiiI")
_LZ4_RAW = 0x10


def _lz4_blocks(file: BinaryIO, complain: Complain) -> Iterator[bytes]:
    block = _library("lz4.block", "lz4")
    while magic := file.read(len(_LZ4_BLOCK)):
        at = file.tell() - len(magic)
        token, packed, size, _ = _LZ4_HEADER.unpack(_exactly(file, _LZ4_HEADER.size))
        if magic != _LZ4_BLOCK or not 0 <= packed <= _MOST or not 0 <= size <= _MOST:
            raise DamagedLogError(f"the rest, from byte {at}, cannot be decompressed: no LZ4 block there")
        data = _exactly(file, packed)
        if token & 0xF0 == _LZ4_RAW:
            yield data
            continue
        try:
            # An empty block ends a stream; another stream may follow.
            yield block.decompress(data, uncompressed_size=size) if size else b""
        except block.LZ4BlockError:
            complain(f"block at byte {at} skipped: it cannot be decompressed")


_SNAPPY_JAVA = b"\x82SNAPPY\x00"
_SNAPPY_JAVA_HEADER = 16


def _snappy_java(file: BinaryIO, complain: Complain) -> Iterator[bytes]:
    snappy = _library("cramjam", "snappy").snappy
    for at, length in _snappy_headers(file):
        if _SNAPPY_JAVA.startswith(length):
            # A header, at the beginning or where another stream was appended.
            _exactly(file, _SNAPPY_JAVA_HEADER - 4)
            continue
        size = int.from_bytes(length, "big", signed=True)
        if not 0 <= size <= _MOST:
            raise DamagedLogError(f"the rest, from byte {at}, cannot be decompressed: no snappy block there")
        yield from _snappy_block(snappy, _exactly(file, size), at, complain)


_SNAPPY_FRAMED = b"\xff\x06\x00\x00sNaPpY"
_SNAPPY_PACKED, _SNAPPY_RAW, _SNAPPY_RESERVED = 0x00, 0x01, range(0x02, 0x80)
_SNAPPY_CHECKSUM = 4


def _snappy_framed(file: BinaryIO, complain: Complain) -> Iterator[bytes]:
    snappy = _library("cramjam", "snappy").snappy
    for at, header in _snappy_headers(file):
        kind, size = header[0], int.from_bytes(header[1:], "little")
        if kind in _SNAPPY_RESERVED:
            raise DamagedLogError(f"the rest, from byte {at}, cannot be decompressed: no snappy chunk there")
        data = _exactly(file, size)
        if kind == _SNAPPY_RAW:
            yield data[_SNAPPY_CHECKSUM:]
        elif kind == _SNAPPY_PACKED:
            yield from _snappy_block(snappy, data[_SNAPPY_CHECKSUM:], at, complain)


def _snappy_headers(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the position and the first four bytes of each block; the caller reads the rest of the block."""
    while header := file.read(4):
        if len(header) < 4:
            raise CutOffError("the file ends in the middle of a compressed block")
        yield file.tell() - 4, header


def _snappy_block(snappy: Any, data: bytes, at: int, complain: Complain) -> Iterator[bytes]:
    try:
        if snappy.decompress_raw_len(data) <= _MOST:
            yield bytes(snappy.decompress_raw(data))
            return
    except Exception as error:
        # cramjam raises its own errors as well as those of the system.
        if isinstance(error, MemoryError):
            raise
    complain(f"block at byte {at} skipped: it cannot be decompressed")


def _exactly(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise CutOffError("the file ends in the middle of a compressed block")
    return data


def _library(module: str, compression: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtraError(
            f"compressed with {compression}, whose library is not installed: pip install 'spark-events[replay]'"
        ) from None


_READERS: tuple[tuple[bytes, Callable[[BinaryIO, Complain], Iterator[bytes]]], ...] = (
    (b"\x1f\x8b", _gzip),
    (b"\x28\xb5\x2f\xfd", _zstd),
    (b"\x04\x22\x4d\x18", _lz4_frame),
    (_LZ4_BLOCK, _lz4_blocks),
    (_SNAPPY_JAVA, _snappy_java),
    (_SNAPPY_FRAMED, _snappy_framed),
    (b"ZV", _lzf),
)
