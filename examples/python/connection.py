"""A connection to `seamline-cloud`: QUIC by aioquic, messages by `wire`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import (
    ConnectionTerminated,
    QuicEvent,
    StreamDataReceived,
    StreamReset,
)

import wire
from wire import WireError

ALPN = "seamline/1"
AGENT = "seamline-python-example/1"
# As long as the service allows for connecting and hello ("Deadlines, cancel, drain").
HELLO_S = 10

# "Codes": QUIC's own code of a failed handshake is 0x100 and the alert of TLS.
TLS_ALERT = 0x100
ALERTS = {
    42: "the certificate is bad",
    45: "the certificate has expired",
    48: "the certificate's authority is not known",
    51: "a signature does not verify",
    116: "a certificate is required",
    120: "no common ALPN",
}


class ServiceError(Exception):
    """What the service answered, reset or closed with."""


class Stream:
    """What has come on a stream, and how it ended."""

    def __init__(self, stream_id: int) -> None:
        self.id = stream_id
        self._data = bytearray()
        self._finished = False
        self._error: Exception | None = None
        self._changed = asyncio.Event()

    def feed(self, data: bytes, finished: bool) -> None:
        """Data from the service, and whether it was the last."""
        self._data += data
        self._finished |= finished
        self._changed.set()

    def fail(self, error: Exception) -> None:
        """Nothing more will come; what has come can still be read."""
        self._error = self._error or error
        self._changed.set()

    async def exactly(self, count: int) -> bytes:
        """The next `count` bytes; a stream that ends before them is an error."""
        while len(self._data) < count:
            if self._finished:
                raise WireError(f"a stream ended {count - len(self._data)} bytes early")
            await self._more()
        taken = bytes(self._data[:count])
        del self._data[:count]
        return taken

    async def frame(self) -> bytes:
        """The body of the next frame ("Encoding"); one too long is refused before it is read."""
        length = int.from_bytes(await self.exactly(4), "little")
        if length > wire.MAX_BODY_BYTES:
            raise WireError(f"a frame of {length} bytes; at most {wire.MAX_BODY_BYTES}")
        return await self.exactly(length)

    async def end(self) -> None:
        """The stream's end; bytes before it are an error ("Request stream")."""
        while not self._finished and not self._data:
            await self._more()
        if self._data:
            raise WireError("bytes behind the end of a message")

    async def _more(self) -> None:
        if self._error:
            raise self._error
        self._changed.clear()
        await self._changed.wait()


class Connection(QuicConnectionProtocol):
    """One connection, used for one request at a time.

    It reads its control stream only while it opens a contract. A client that lives longer reads
    it in a task of its own, to hear of the service's load and of its draining.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._control = Stream(self._quic.get_next_available_stream_id())
        self._streams = {self._control.id: self._control}
        self._welcome: wire.Welcome | None = None

    def quic_event_received(self, event: QuicEvent) -> None:
        """Hands what comes to its stream.

        A stream whose sending is stopped needs nothing here: its answer must be read all the same
        ("Answer").
        """
        if isinstance(event, StreamDataReceived) and event.stream_id in self._streams:
            self._streams[event.stream_id].feed(event.data, event.end_stream)
        elif isinstance(event, StreamReset) and event.stream_id in self._streams:
            cause = wire.code_name(event.error_code)
            stream = self._streams[event.stream_id]
            stream.fail(ServiceError(f"the service reset the stream: {cause}"))
        elif isinstance(event, ConnectionTerminated):
            for stream in self._streams.values():
                stream.fail(ServiceError(closed(event)))

    async def hello(self, token: bytes | None) -> wire.Welcome:
        """Introduces this client and returns what the service allows ("Control stream")."""
        try:
            return await asyncio.wait_for(self._hello(token), HELLO_S)
        except TimeoutError:
            raise ServiceError(f"no service answered within {HELLO_S} s") from None

    async def open_contract(self, fingerprint: bytes, model: str) -> int:
        """The handle of a bundle ("After the welcome")."""
        self._send(self._control, wire.open_contract(fingerprint, model, self.limits))
        while True:
            match wire.control_message(await self._control.frame()):
                case wire.Opened(contract):
                    return contract
                case wire.OpenRefused(code, message):
                    raise ServiceError(f"open refused: {wire.code_name(code)}: {message}")
                case wire.Draining():
                    raise ServiceError("the service is draining; connect to another one")

    async def infer(
        self, header: wire.RequestHeader, payloads: list[bytes]
    ) -> tuple[wire.Ok, list[bytes]]:
        """One request and its answer ("Request stream"); cancelled when its deadline passes."""
        wire.check_tensors(header.tensors, self.limits.max_request_bytes, self.limits)
        data = wire.request(header, self.limits) + b"".join(payloads)
        stream = Stream(self._quic.get_next_available_stream_id())
        self._streams[stream.id] = stream
        self._send(stream, data, end=True)
        deadline_s = header.deadline_us / 1e6
        try:
            return await asyncio.wait_for(self._answer(stream, header.id), deadline_s)
        except TimeoutError:
            self._cancel(stream, wire.DEADLINE_EXCEEDED)
            raise ServiceError(f"no answer within {deadline_s} s") from None
        finally:
            del self._streams[stream.id]

    @property
    def limits(self) -> wire.Limits:
        """The limits of the welcome."""
        assert self._welcome is not None, "hello comes first"
        return self._welcome.limits

    async def _hello(self, token: bytes | None) -> wire.Welcome:
        self._send(self._control, wire.hello(AGENT, token))
        oldest, newest = wire.prefix_versions(await self._control.exactly(wire.PREFIX_BYTES))
        if not oldest <= wire.VERSION <= newest:
            spoken = f"it speaks {oldest} to {newest}, this client {wire.VERSION}"
            raise ServiceError(f"the service has no version in common: {spoken}")
        answer = wire.hello_answer(await self._control.frame())
        if isinstance(answer, wire.Refused):
            raise ServiceError(f"hello refused: {wire.code_name(answer.code)}: {answer.reason}")
        self._welcome = answer
        return answer

    async def _answer(self, stream: Stream, request_id: int) -> tuple[wire.Ok, list[bytes]]:
        answer = wire.answer(await stream.frame())
        if isinstance(answer, wire.Error):
            raise ServiceError(_refusal(answer))
        if answer.id != request_id:
            raise WireError("the answer is to another request")
        wire.check_tensors(answer.tensors, self.limits.max_reply_bytes, self.limits)
        replies = [await stream.exactly(each.payload_bytes) for each in answer.tensors]
        await stream.end()
        return answer, replies

    def _send(self, stream: Stream, data: bytes, end: bool = False) -> None:
        self._quic.send_stream_data(stream.id, data, end_stream=end)
        self.transmit()

    def _cancel(self, stream: Stream, code: int) -> None:
        """Gives up a request ("Deadlines, cancel, drain")."""
        self._quic.reset_stream(stream.id, code)
        self._quic.stop_stream(stream.id, code)
        self.transmit()


@asynccontextmanager
async def connected(
    address: str, server_name: str | None, identity: Path, device: str | None
) -> AsyncIterator[Connection]:
    """Connects ("Transport"); with the certificate of `device` where one is named."""
    host, _, port = address.rpartition(":")
    configuration = QuicConfiguration(alpn_protocols=[ALPN], server_name=server_name)
    configuration.load_verify_locations(cafile=str(identity / "ca.pem"))
    if device:
        configuration.load_cert_chain(identity / f"{device}.pem", identity / f"{device}.key")
    # The hello is sent as soon as the handshake allows: its answer, or the close, says how both
    # went. There is no session ticket, and so no 0-RTT.
    async with connect(
        host.strip("[]"),
        int(port),
        configuration=configuration,
        create_protocol=Connection,
        wait_connected=False,
    ) as connection:
        yield cast(Connection, connection)


def closed(event: ConnectionTerminated) -> str:
    """Why a connection ended, as text ("Codes")."""
    if event.frame_type is None:
        cause = wire.code_name(event.error_code)
    elif event.error_code >= TLS_ALERT:
        alert = event.error_code - TLS_ALERT
        cause = f"TLS handshake failed: {ALERTS.get(alert, 'alert')} ({alert})"
    else:
        cause = f"QUIC error {event.error_code:#x}"
    reason = f": {event.reason_phrase}" if event.reason_phrase else ""
    return f"the connection was closed: {cause}{reason}"


def _refusal(error: wire.Error) -> str:
    wait = f"; retry after {error.retry_after_ms} ms" if error.retry_after_ms is not None else ""
    return f"request refused: {wire.code_name(error.code)}: {error.message}{wait}"
