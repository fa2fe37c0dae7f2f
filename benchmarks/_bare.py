"""Baseline program: read JSON lines from a pipe, decode and encode them, and write them to a file."""

from __future__ import annotations

import os
import sys

import msgspec

_CHUNK_BYTES = 64 * 1024


def main() -> None:
    """Copy standard input to the file in the first argument, without validating the lines."""
    file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    decode, encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode_lines
    rest = b""
    while chunk := os.read(0, _CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        os.write(file, encode([decode(line) for line in lines]))


if __name__ == "__main__":
    main()
