"""Makes small files of data for tests. Python's own library only."""

import struct
import zlib


def png(path, width, height, grey):
    """A grey PNG of one brightness."""
    rows = b"".join(b"\0" + bytes([grey]) * width for _ in range(height))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    )


def idx(path, count, side, bytes_missing=0):
    pixels = bytes(i % 251 for i in range(count * side * side))
    path.write_bytes(struct.pack(">IIII", 0x803, count, side, side) + pixels[: len(pixels) - bytes_missing])


def idx_labels(path, labels):
    path.write_bytes(struct.pack(">II", 0x801, len(labels)) + bytes(labels))


def npy(path, shape, numbers, bytes_missing=0):
    text = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s,), }" % ", ".join(map(str, shape))
    text += " " * (63 - (len(text) + 10) % 64) + "\n"
    data = struct.pack("<%df" % len(numbers), *numbers)
    header = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()
    path.write_bytes(header + data[: len(data) - bytes_missing])
