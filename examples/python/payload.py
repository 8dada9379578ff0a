"""Tensors to payloads and back ("Codecs" of PROTOCOL.md)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from wire import TensorHeader, WireError

Array = NDArray[Any]

# Names of dtypes in the manifest, their numbers on the wire, and their little-endian elements.
# numpy has no bf16: its elements stay as their 16 bits.
DTYPES: dict[str, tuple[int, str]] = {
    "f32": (1, "<f4"),
    "u8": (2, "u1"),
    "i8": (3, "i1"),
    "u16": (4, "<u2"),
    "i16": (5, "<i2"),
    "i32": (6, "<i4"),
    "i64": (7, "<i8"),
    "bool": (9, "?"),
    "f16": (10, "<f2"),
    "f64": (11, "<f8"),
    "u32": (12, "<u4"),
    "u64": (13, "<u8"),
    "bf16": (16, "<u2"),
}
ELEMENTS = {number: np.dtype(element) for number, element in DTYPES.values()}
BOOL = DTYPES["bool"][0]
CODECS = {"raw": 0, "f16": 1, "int8": 2, "packed": 3}

SMALLEST_NORMAL = np.finfo(np.float32).tiny
MAX_SCALE = np.uint32(0x7C010203).view(np.float32)
MAX_LEVEL = 127


def encode(array: Array, dtype: str, codec: str, axis: int | None) -> tuple[TensorHeader, bytes]:
    """A tensor's header and payload; `axis` is the manifest's, for int8."""
    number, element = DTYPES[dtype]
    values = np.ascontiguousarray(array, dtype=element)
    if not values.size:
        data = b""
    elif codec == "raw":
        data = values.tobytes()
    elif codec == "f16":
        data = values.astype("<f2").tobytes()
    elif codec == "int8":
        data = _encode_int8(values, axis)
    else:
        data = np.packbits(values, bitorder="little").tobytes() if number == BOOL else _pack(values)
    return TensorHeader(CODECS[codec], number, array.shape, len(data)), data


def decode(header: TensorHeader, data: bytes, axis: int | None) -> Array:
    """The tensor of a payload; `axis` is the manifest's, for int8."""
    element = ELEMENTS[header.dtype]
    if not header.elements():
        flat = _exactly(data, element, 0)
    elif header.codec == CODECS["raw"]:
        flat = _exactly(data, element, header.elements())
    elif header.codec == CODECS["f16"]:
        flat = _exactly(data, np.dtype("<f2"), header.elements()).astype(element)
    elif header.codec == CODECS["int8"]:
        return _decode_int8(header, data, axis)
    elif header.codec == CODECS["packed"]:
        flat = _decode_bits(header, data) if header.dtype == BOOL else _unpack(header, data)
    else:
        raise WireError(f"codec {header.codec} is not known")
    return flat.reshape(header.shape)


def _exactly(data: bytes, element: np.dtype, count: int) -> Array:
    if len(data) != count * element.itemsize:
        expected = count * element.itemsize
        raise WireError(f"a payload of {len(data)} bytes; {expected} were expected")
    return np.frombuffer(data, element)


def _along(scale: Array, rank: int, axis: int) -> Array:
    """Scales, shaped so that they multiply the channels of a tensor."""
    return scale.reshape([-1 if dim == axis else 1 for dim in range(rank)])


def _encode_int8(values: Array, axis: int | None) -> bytes:
    assert axis is not None, "the manifest gives int8 an axis"
    largest = np.abs(values).max(axis=tuple(dim for dim in range(values.ndim) if dim != axis))
    if not np.isfinite(largest).all():
        raise ValueError("int8 cannot carry NaN or infinity; send them raw")
    scale = (largest / np.float32(MAX_LEVEL)).clip(SMALLEST_NORMAL, MAX_SCALE)
    levels = np.rint(values / _along(scale, values.ndim, axis)).clip(-MAX_LEVEL, MAX_LEVEL)
    stated = np.where(largest == 0, np.float32(0), scale)
    return stated.astype("<f4").tobytes() + levels.astype("i1").tobytes()


def _decode_int8(header: TensorHeader, data: bytes, axis: int | None) -> Array:
    assert axis is not None, "the manifest gives int8 an axis"
    scale_bytes = 4 * header.shape[axis]
    scale = _exactly(data[:scale_bytes], np.dtype("<f4"), header.shape[axis])
    levels = _exactly(data[scale_bytes:], np.dtype("i1"), header.elements())
    return levels.reshape(header.shape) * _along(scale, len(header.shape), axis)


def _pack(values: Array) -> bytes:
    base, largest = int(values.min()), int(values.max())
    width = next(w for w in (0, 1, 2, 4, 8) if largest - base < 1 << 8 * w)
    start = (base % (1 << 64)).to_bytes(8, "little") + bytes([width])
    offsets = values.astype("<u8") - np.uint64(base % (1 << 64))
    return start + (offsets.astype(f"<u{width}").tobytes() if width else b"")


def _unpack(header: TensorHeader, data: bytes) -> Array:
    element = ELEMENTS[header.dtype]
    if len(data) < 9 or data[8] not in (0, 1, 2, 4, 8) or data[8] > element.itemsize:
        raise WireError("a packed payload does not begin with a base and a width")
    base, width = np.frombuffer(data[:8], "<u8"), data[8]
    if not width:
        offsets = np.zeros(header.elements(), "<u8")
        _exactly(data[9:], element, 0)
    else:
        offsets = _exactly(data[9:], np.dtype(f"<u{width}"), header.elements())
    return (offsets.astype("<u8") + base).astype(element)


def _decode_bits(header: TensorHeader, data: bytes) -> Array:
    packed = _exactly(data, np.dtype("u1"), (header.elements() + 7) // 8)
    bits = np.unpackbits(packed, bitorder="little")
    if bits[header.elements() :].any():
        raise WireError("bits after the last boolean are not 0")
    return bits[: header.elements()].astype(bool)
