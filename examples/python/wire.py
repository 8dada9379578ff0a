"""The bytes of the Seamline protocol, version 1, written from PROTOCOL.md alone. No IO here."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

MAGIC = b"SEAMLINE"
VERSION = 1
PREFIX_BYTES = 12
MAX_BODY_BYTES = 65_536

# "Codes": what a reply, a reset or a close says.
CODES = {
    0: "Closed",
    1: "Malformed",
    2: "VersionMismatch",
    3: "Unauthenticated",
    4: "UnknownContract",
    5: "LimitExceeded",
    6: "InvalidTensor",
    7: "Overloaded",
    8: "DeadlineExceeded",
    9: "Cancelled",
    10: "Draining",
    11: "Unsupported",
    12: "NotReady",
    13: "Internal",
    14: "IdleTimeout",
    15: "DuplicateRequest",
    16: "UnknownSession",
}
DEADLINE_EXCEEDED = 8

# "Request": bytes of an element of each dtype, by the number of ONNX's TensorProto.DataType.
ELEMENT_BYTES = {1: 4, 2: 1, 3: 1, 4: 2, 5: 2, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8, 12: 4, 13: 8, 16: 2}
RAW = 0
# The priority of a caller without a wish.
NO_WISH = 128


def code_name(code: int) -> str:
    """A code as text; one that is not known is a failure of unknown cause ("Codes")."""
    return f"{CODES.get(code, 'an unknown code')} ({code})"


class WireError(Exception):
    """Bytes from the service that are not this protocol."""


@dataclass(frozen=True)
class Limits:
    """What this connection may carry ("Answer to hello")."""

    max_request_bytes: int
    max_reply_bytes: int
    max_decoded_bytes: int
    max_tensors: int
    max_rank: int
    max_in_flight: int
    max_header_bytes: int
    max_contracts: int


@dataclass(frozen=True)
class Load:
    """How busy the service is ("Answer to hello")."""

    in_flight: int
    capacity: int
    queue_us: int


@dataclass(frozen=True)
class Welcome:
    """A hello that was accepted."""

    version: int
    agent: str
    features: int
    limits: Limits
    load: Load


@dataclass(frozen=True)
class Refused:
    """A hello that was not."""

    code: int
    reason: str


@dataclass(frozen=True)
class Opened:
    """An Open that was accepted: the handle that requests name."""

    contract: int
    load: Load


@dataclass(frozen=True)
class OpenRefused:
    """An Open that was not, and the fingerprints that the service holds of that model."""

    code: int
    message: str
    known: list[bytes]


@dataclass(frozen=True)
class Draining:
    """The service takes nothing new on this connection."""


@dataclass(frozen=True)
class TensorHeader:
    """What a frame says of one tensor; its payload follows the frame ("Request")."""

    codec: int
    dtype: int
    shape: tuple[int, ...]
    payload_bytes: int

    def elements(self) -> int:
        """The number of elements after decoding."""
        return math.prod(self.shape)

    def decoded_bytes(self) -> int:
        """The size after decoding."""
        return self.elements() * ELEMENT_BYTES[self.dtype]


@dataclass(frozen=True)
class RequestHeader:
    """A request without its payloads ("Request"): of usual priority, and without a trace."""

    id: int
    contract: int
    cut: int
    deadline_us: int
    session: int | None
    step: int
    tensors: list[TensorHeader]


@dataclass(frozen=True)
class Timings:
    """Where the service's time went ("Answer")."""

    queue_us: int
    decode_us: int
    run_us: int
    encode_us: int
    batch_size: int


@dataclass(frozen=True)
class Ok:
    """An answer with tensors."""

    id: int
    timings: Timings
    load: Load
    tensors: list[TensorHeader]


@dataclass(frozen=True)
class Error:
    """An answer that says what failed."""

    id: int
    code: int
    message: str
    retry_after_ms: int | None


# Encoding


def varint(value: int, bits: int) -> bytes:
    """An unsigned integer of `bits` bits, 7 bits a byte, least significant first ("Encoding")."""
    if not 0 <= value < 1 << bits:
        raise ValueError(f"{value} is not a u{bits}")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def counted(data: bytes) -> bytes:
    """Bytes, or the UTF-8 of a string, behind their count ("Encoding")."""
    return varint(len(data), 64) + data


def optional(encoded: bytes | None) -> bytes:
    """An option of what is encoded already ("Encoding")."""
    return b"\x00" if encoded is None else b"\x01" + encoded


def frame(body: bytes, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """A body behind its length ("Encoding"), within the limit that holds for it."""
    if len(body) > max_bytes:
        raise ValueError(f"a frame of {len(body)} bytes; at most {max_bytes} are allowed")
    return len(body).to_bytes(4, "little") + body


def hello(agent: str, token: bytes | None) -> bytes:
    """Prefix and frame that begin the control stream ("Hello")."""
    versions = VERSION.to_bytes(2, "little") * 2
    token_field = optional(None if token is None else counted(token))
    return MAGIC + versions + frame(counted(agent.encode()) + token_field + varint(0, 64))


def open_contract(fingerprint: bytes, model: str, limits: Limits) -> bytes:
    """Asks for a contract ("After the welcome")."""
    body = varint(0, 32) + fingerprint + counted(model.encode())
    return frame(body, limits.max_header_bytes)


def request(header: RequestHeader, limits: Limits) -> bytes:
    """The frame of a request ("Request")."""
    body = b"".join(
        [
            varint(header.id, 128),
            varint(header.contract, 32),
            varint(header.cut, 16),
            bytes([NO_WISH]),
            optional(varint(header.deadline_us, 64)),
            optional(None),  # trace
            optional(None if header.session is None else varint(header.session, 64)),
            varint(header.step, 64),
            varint(len(header.tensors), 64),
            *map(_tensor, header.tensors),
        ]
    )
    return frame(body, limits.max_header_bytes)


def _tensor(tensor: TensorHeader) -> bytes:
    shape = varint(len(tensor.shape), 64) + b"".join(varint(d, 64) for d in tensor.shape)
    return bytes([tensor.codec, tensor.dtype]) + shape + varint(tensor.payload_bytes, 64)


# Decoding


class Body:
    """The fields of a frame's body, read in order; none may be missing and none left over."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        if count > len(self._data) - self._at:
            raise WireError(f"a body of {len(self._data)} bytes is too short for its fields")
        self._at += count
        return self._data[self._at - count : self._at]

    def u8(self) -> int:
        """One byte."""
        return self.take(1)[0]

    def uint(self, bits: int) -> int:
        """A varint that must fit into `bits` bits."""
        value = 0
        for shift in range(0, bits, 7):
            byte = self.u8()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise WireError(f"a varint is longer than a u{bits} can be")
        if value >= 1 << bits:
            raise WireError(f"{value} is not a u{bits}")
        return value

    def string(self) -> str:
        """A counted string."""
        try:
            return self.take(self.uint(64)).decode()
        except UnicodeDecodeError as error:
            raise WireError(f"a string is not UTF-8: {error}") from error

    def option(self, read: Callable[[], T]) -> T | None:
        """Nothing, or what `read` reads."""
        present = self.u8()
        if present > 1:
            raise WireError(f"an option begins with {present}, not 0 or 1")
        return read() if present else None

    def list_of(self, read: Callable[[], T]) -> list[T]:
        """A count and that many of what `read` reads."""
        return [read() for _ in range(self.uint(64))]

    def end(self) -> None:
        """Checks that nothing is left over."""
        if self._at != len(self._data):
            raise WireError(f"{len(self._data) - self._at} bytes are left over in a body")


def prefix_versions(prefix: bytes) -> tuple[int, int]:
    """The oldest and newest version that the service speaks ("Answer to hello")."""
    if len(prefix) != PREFIX_BYTES or not prefix.startswith(MAGIC):
        raise WireError("the peer does not speak Seamline: its prefix is not SEAMLINE")
    return int.from_bytes(prefix[8:10], "little"), int.from_bytes(prefix[10:12], "little")


def hello_answer(data: bytes) -> Welcome | Refused:
    """The frame behind the service's prefix ("Answer to hello")."""
    body = Body(data)
    answer: Welcome | Refused
    match body.uint(32):
        case 0:
            version, agent, features = body.uint(16), body.string(), body.uint(64)
            answer = Welcome(version, agent, features, _limits(body), _load(body))
        case 1:
            answer = Refused(body.uint(16), body.string())
        case variant:
            raise WireError(f"an answer to hello of unknown variant {variant}")
    body.end()
    return answer


def control_message(data: bytes) -> Opened | OpenRefused | Load | Draining:
    """A frame of the service behind its welcome ("After the welcome")."""
    body = Body(data)
    message: Opened | OpenRefused | Load | Draining
    match body.uint(32):
        case 0:
            message = Opened(body.uint(32), _load(body))
        case 1:
            code, text = body.uint(16), body.string()
            message = OpenRefused(code, text, body.list_of(lambda: body.take(32)))
        case 2:
            message = _load(body)
        case 3:
            message = Draining()
        case variant:
            raise WireError(f"a control message of unknown variant {variant}")
    body.end()
    return message


def answer(data: bytes) -> Ok | Error:
    """The frame that begins an answer ("Answer")."""
    body = Body(data)
    read: Ok | Error
    match body.uint(32):
        case 0:
            request_id, timings, load = body.uint(128), _timings(body), _load(body)
            read = Ok(request_id, timings, load, body.list_of(lambda: _tensor_header(body)))
        case 1:
            request_id, code, text = body.uint(128), body.uint(16), body.string()
            read = Error(request_id, code, text, body.option(lambda: body.uint(32)))
        case variant:
            raise WireError(f"an answer of unknown variant {variant}")
    body.end()
    return read


def _limits(body: Body) -> Limits:
    sizes = body.uint(64), body.uint(64), body.uint(64)
    return Limits(*sizes, body.uint(16), body.u8(), body.uint(32), body.uint(32), body.uint(32))


def _load(body: Body) -> Load:
    return Load(body.uint(32), body.uint(32), body.uint(32))


def _timings(body: Body) -> Timings:
    spans = body.uint(64), body.uint(64), body.uint(64), body.uint(64)
    return Timings(*spans, body.uint(32))


def _tensor_header(body: Body) -> TensorHeader:
    codec, dtype = body.u8(), body.u8()
    shape = tuple(body.list_of(lambda: body.uint(64)))
    return TensorHeader(codec, dtype, shape, body.uint(64))


def check_tensors(tensors: list[TensorHeader], max_bytes: int, limits: Limits) -> None:
    """What must hold of a header before memory is taken for it ("Request")."""
    if len(tensors) > limits.max_tensors:
        raise WireError(f"{len(tensors)} tensors; at most {limits.max_tensors} are allowed")
    for tensor in tensors:
        _check_tensor(tensor, limits)
    payload = sum(tensor.payload_bytes for tensor in tensors)
    if payload > max_bytes:
        raise WireError(f"{payload} bytes of payload; at most {max_bytes} are allowed")
    decoded = sum(tensor.decoded_bytes() for tensor in tensors)
    if decoded > limits.max_decoded_bytes:
        raise WireError(f"{decoded} decoded bytes; at most {limits.max_decoded_bytes} are allowed")


def _check_tensor(tensor: TensorHeader, limits: Limits) -> None:
    if tensor.dtype not in ELEMENT_BYTES:
        raise WireError(f"a tensor of unknown dtype {tensor.dtype}")
    if len(tensor.shape) > limits.max_rank:
        raise WireError(f"a tensor of rank {len(tensor.shape)}; at most {limits.max_rank}")
    dims = math.prod(dim for dim in tensor.shape if dim)
    if dims * ELEMENT_BYTES[tensor.dtype] >= 1 << 64:
        raise WireError(f"a tensor of shape {list(tensor.shape)} has no size in 64 bits")
    if tensor.codec == RAW and tensor.payload_bytes != tensor.decoded_bytes():
        expected = tensor.decoded_bytes()
        raise WireError(f"a raw tensor of {tensor.payload_bytes} bytes, not {expected}")
