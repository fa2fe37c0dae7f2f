"""Tests of compressed event logs: Spark's formats, truncated and damaged files, and missing libraries."""

from __future__ import annotations

import gzip
import importlib
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import cramjam
import lz4.block
import pytest

from spark_events.errors import MissingExtraError
from spark_events.records.event_log.compression import CutOffError, DamagedLogError, pieces

zstd = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")

FIXTURES = Path(__file__).parent / "fixtures"
#: Text whose lines, and therefore blocks, differ. The text spans several read chunks.
TEXT = b"".join(b"line %d of some text\n" % number for number in range(60_000))


def lz4_java(text: bytes, block: int = 32 * 1024) -> bytes:
    """Compress like lz4-java's ``LZ4BlockOutputStream``, with every third block uncompressed, and an end mark."""
    made = b""
    for number, start in enumerate(range(0, len(text), block)):
        part = text[start : start + block]
        packed = part if number % 3 == 2 else lz4.block.compress(part, store_size=False)
        made += b"LZ4Block" + struct.pack("<BiiI", 0x15 if packed is part else 0x25, len(packed), len(part), 0) + packed
    return made + b"LZ4Block" + struct.pack("<BiiI", 0x15, 0, 0, 0)


def snappy_java(text: bytes, block: int = 32 * 1024) -> bytes:
    """Compress like snappy-java's ``SnappyOutputStream``."""
    made = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for start in range(0, len(text), block):
        packed = bytes(cramjam.snappy.compress_raw(text[start : start + block]))
        made += struct.pack(">i", len(packed)) + packed
    return made


def zstd_frames(text: bytes) -> bytes:
    """Compress into several consecutive frames."""
    return b"".join(zstd.compress(text[start : start + 500_000]) for start in range(0, len(text), 500_000))


CODECS: dict[str, Callable[[bytes], bytes]] = {
    "zstd": zstd.compress,
    "zstd frames": zstd_frames,
    "lz4-java": lz4_java,
    "lz4-java, two streams": lambda text: lz4_java(text[:99_999]) + lz4_java(text[99_999:]),
    "snappy-java": snappy_java,
    "snappy-java, two streams": lambda text: snappy_java(text[:99_999]) + snappy_java(text[99_999:]),
    "gzip": gzip.compress,
    "gzip members": lambda text: gzip.compress(text[:99_999]) + gzip.compress(text[99_999:]),
    "plain": lambda text: text,
}


class Unpacked:
    """Text read from a file, and the error that ended the read, if any."""

    def __init__(self, path: Path, content: bytes | None = None) -> None:
        if content is not None:
            path.write_bytes(content)
        self.complaints: list[str] = []
        self.pieces: list[bytes] = []
        self.error: Exception | None = None
        with path.open("rb") as file:
            try:
                for piece in pieces(file, self.complaints.append):
                    self.pieces.append(piece)
            except (CutOffError, DamagedLogError, MissingExtraError) as error:
                self.error = error

    @property
    def text(self) -> bytes:
        return b"".join(self.pieces)


@pytest.mark.parametrize("codec", CODECS)
def test_the_first_bytes_identify_the_codec(tmp_path: Path, codec: str) -> None:
    """The first bytes of a file identify the codec; the file's name has no effect."""
    unpacked = Unpacked(tmp_path / "local-1", CODECS[codec](TEXT))
    assert unpacked.text == TEXT
    assert unpacked.error is None
    assert unpacked.complaints == []


@pytest.mark.parametrize("codec", CODECS)
def test_no_piece_is_large(tmp_path: Path, codec: str) -> None:
    """Each chunk of the text is small, so memory use does not depend on the file's size or compression ratio."""
    unpacked = Unpacked(tmp_path / "local-1", CODECS[codec](b"\n" * 20_000_000))
    assert sum(map(len, unpacked.pieces)) == 20_000_000
    assert max(map(len, unpacked.pieces)) <= 1 << 18


@pytest.mark.parametrize("name", ["zstd", "lz4", "snappy"])
def test_files_compressed_by_spark_are_read(name: str) -> None:
    expected = (FIXTURES / "batch_udf-4.3.jsonl").read_bytes()
    assert Unpacked(FIXTURES / f"batch_udf-4.3.{name}").text == expected


@pytest.mark.parametrize("name", ["zstd", "snappy"])
def test_flushed_text_of_a_log_in_progress_is_read(name: str) -> None:
    expected = (FIXTURES / "batch_udf-4.3.jsonl").read_bytes()
    unpacked = Unpacked(FIXTURES / f"batch_udf-4.3.{name}.inprogress")
    assert expected.startswith(unpacked.text)
    assert len(unpacked.text) > len(expected) // 2
    assert unpacked.error is None or isinstance(unpacked.error, CutOffError)


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "plain"])
@pytest.mark.parametrize("share", [0.3, 0.77])
def test_a_truncated_file_is_read_up_to_its_end(tmp_path: Path, codec: str, share: float) -> None:
    """A truncated file is read up to its last whole block. Then an error reports the truncation."""
    whole = CODECS[codec](TEXT)
    unpacked = Unpacked(tmp_path / "local-1", whole[: round(len(whole) * share)])
    assert TEXT.startswith(unpacked.text)
    assert len(unpacked.text) > len(TEXT) * (share - 0.3)
    assert isinstance(unpacked.error, CutOffError)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("cut", [*range(30), 100])
def test_a_file_may_be_truncated_anywhere(tmp_path: Path, codec: str, cut: int) -> None:
    """If a file is truncated anywhere, even in its header, the read returns a prefix of the text and no other error."""
    text = b"some text, some text, some text\n" * 10
    whole = CODECS[codec](text)
    unpacked = Unpacked(tmp_path / "local-1", whole[:cut])
    if cut >= 10:
        assert text.startswith(unpacked.text)
    else:
        # A file with fewer than 10 bytes is read as plain text.
        assert unpacked.text in (b"", whole[:cut])
    if codec != "plain" and 16 < cut < len(whole):
        assert isinstance(unpacked.error, CutOffError)


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "plain"])
def test_damage_is_reported_and_never_fatal(tmp_path: Path, codec: str) -> None:
    """Damage is reported and does not abort the replay. Text before the damage and later whole blocks are read."""
    whole = bytearray(CODECS[codec](TEXT))
    middle = len(whole) // 2
    whole[middle : middle + 40] = b"\xff" * 40
    unpacked = Unpacked(tmp_path / "local-1", bytes(whole))
    assert TEXT.startswith(unpacked.text[: len(TEXT) // 4])
    if codec.startswith("zstd"):
        # Spark writes no checksums. Damage therefore changes the text, and its lines are no longer JSON.
        assert len(unpacked.text) == len(TEXT)
        assert unpacked.text != TEXT
    else:
        assert unpacked.complaints or unpacked.error is not None


def test_a_damaged_block_is_skipped(tmp_path: Path) -> None:
    """A damaged snappy block is skipped, and other blocks are read, because each block starts with its length."""
    whole = bytearray(snappy_java(b"a" * 1000 + b"b" * 1000 + b"c" * 1000, block=1000))
    # The length of the data, in four bytes, precedes each block. The data begins with the length of the text.
    second = whole.index(b"b") - 3
    whole[second : second + 6] = b"\xff" * 6
    unpacked = Unpacked(tmp_path / "local-1", bytes(whole))
    assert unpacked.text == b"a" * 1000 + b"c" * 1000
    assert len(unpacked.complaints) == 1


def test_lzf_is_reported_as_unsupported(tmp_path: Path) -> None:
    """The lzf codec is reported as unsupported. All other Spark codecs are supported."""
    unpacked = Unpacked(tmp_path / "local-1", b"ZV\x01\x00\x10\x00\x20")
    assert str(unpacked.error) == "compressed with lzf, which is not supported; decompress the file first"


@pytest.mark.parametrize(
    ("codec", "module"),
    [
        ("zstd", zstd.__name__),
        ("lz4-java", "lz4.block"),
        ("snappy-java", "cramjam"),
    ],
)
def test_a_missing_library_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str, module: str
) -> None:
    """The message about a missing library contains the extra to install. Files with other codecs can still be read."""
    monkeypatch.setitem(sys.modules, module, None)
    error = Unpacked(tmp_path / "local-1", CODECS[codec](TEXT)).error
    assert isinstance(error, MissingExtraError)
    assert "pip install 'spark-events[replay]'" in str(error)


@pytest.mark.parametrize("codec", ["gzip", "plain"])
def test_gzip_and_plain_text_need_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str) -> None:
    """Gzip files and plain text are read without the extra."""
    for module in (zstd.__name__, "lz4.block", "cramjam"):
        monkeypatch.setitem(sys.modules, module, None)
    assert Unpacked(tmp_path / "local-1", CODECS[codec](TEXT)).text == TEXT
