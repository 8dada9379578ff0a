"""One request to `seamline-cloud` from Python, by PROTOCOL.md alone. See README.md."""

from __future__ import annotations

import argparse
import asyncio
import logging
import secrets
import sys
from pathlib import Path
from typing import Any

import numpy as np

import payload
import wire
from bundle import Bundle, BundleError
from connection import Connection, ServiceError, connected
from payload import Array

Values = dict[str, Array]
Cut = dict[str, Any]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path, help="a bundle's folder, NAME.seam")
    parser.add_argument("--connect", required=True, metavar="HOST:PORT", help="the service")
    parser.add_argument("--server-name", help="its name, where not the host")
    parser.add_argument("--identity", type=Path, required=True, help="folder with ca.pem")
    parser.add_argument("--device", help="prove this device's name by its certificate")
    parser.add_argument("--token", help="prove this device's name by its token")
    parser.add_argument("--cut", help="id of the cut, where not the bundle's default")
    parser.add_argument("--codec", choices=payload.CODECS, default="raw", help="codec to send in")
    parser.add_argument("--input", action="append", default=[], metavar="NAME=FILE.npy")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs that are not given")
    parser.add_argument("--steps", type=int, default=1, help="requests, one after the other")
    parser.add_argument("--deadline-s", type=float, default=10, help="longest wait for an answer")
    parser.add_argument("--check", type=Path, metavar="MODEL", help="compare with the whole model")
    return parser.parse_args()


def token_of(identity: Path, device: str | None) -> bytes | None:
    """A device's token, which its file has in hexadecimal."""
    return bytes.fromhex((identity / f"{device}.token").read_text().strip()) if device else None


def run_model(model: Path, inputs: Values) -> Values:
    """Runs an ONNX model on its inputs among `inputs`."""
    import onnxruntime  # Only heads and --check need it.

    try:
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        fed = {node.name: inputs[node.name] for node in session.get_inputs()}
        names = [node.name for node in session.get_outputs()]
        return dict(zip(names, session.run(names, fed), strict=True))
    except Exception as error:  # ONNX Runtime's errors have no other base.
        raise BundleError(f"{model.name} cannot be run: {error}") from error


def crossing(bundle: Bundle, cut: Cut, inputs: Values) -> Values:
    """Everything that may cross the cut: the inputs, and what the device's stages make of them."""
    values = dict(inputs)
    for stage in bundle.head(cut):
        values |= run_model(stage, values)
    return values


def encode(cut: Cut, values: Values, wanted: str) -> list[tuple[wire.TensorHeader, bytes]]:
    """What crosses the cut, in the manifest's order; raw where a value cannot go as wanted."""
    encoded = []
    for value in cut["crossing"]:
        offered = {codec["kind"]: codec.get("axis") for codec in value["codecs"]}
        codec = wanted if wanted in offered else "raw"
        spec = value["spec"]
        encoded.append(payload.encode(values[spec["name"]], spec["dtype"], codec, offered[codec]))
    return encoded


def decode(cut: Cut, headers: list[wire.TensorHeader], payloads: list[bytes]) -> Values:
    """The answer's tensors by name; each must be what the manifest says."""
    replies = cut["replies"]
    if len(headers) != len(replies):
        raise wire.WireError(f"{len(headers)} tensors in the answer, not {len(replies)}")
    outputs = {}
    for reply, header, data in zip(replies, headers, payloads, strict=True):
        name, codec = reply["spec"]["name"], reply["codec"]
        expected = payload.DTYPES[reply["spec"]["dtype"]][0], payload.CODECS[codec["kind"]]
        if (header.dtype, header.codec) != expected:
            raise wire.WireError(f"{name} came as {header}, not as dtype and codec {expected}")
        outputs[name] = payload.decode(header, data, codec.get("axis"))
    return outputs


def made_here(bundle: Bundle, values: Values) -> Values:
    """Outputs that the device's stages made, which do not come back ("The manifest")."""
    names = [spec["name"] for spec in bundle.manifest["outputs"]]
    return {name: values[name] for name in names if name in values}


def inputs_of(bundle: Bundle, options: argparse.Namespace, step: int) -> Values:
    """The inputs of a step: those given, and random ones for the rest."""
    inputs = bundle.draw(np.random.default_rng([options.seed, step]))
    for given in options.input:
        name, _, file = given.partition("=")
        if name not in inputs:
            raise BundleError(f"the model has no input {name}; it has {', '.join(inputs)}")
        inputs[name] = np.load(file)
    return inputs


class Checker:
    """Runs the whole model beside the service, and carries its states from step to step."""

    def __init__(self, bundle: Bundle, model: Path) -> None:
        self._model = model
        self._states = bundle.states()
        self._carried = bundle.zero_states()
        self._largest = 0.0

    def compare(self, inputs: Values, outputs: Values) -> None:
        """Notes how far `outputs` are from the whole model's."""
        whole = run_model(self._model, inputs | self._carried)
        self._carried = {name: whole[output] for name, output in self._states.items()}
        for name, output in outputs.items():
            if output.shape != whole[name].shape:
                raise wire.WireError(f"{name} is {output.shape}, not {whole[name].shape}")
            apart = np.abs(output.astype(np.float64) - whole[name].astype(np.float64))
            self._largest = max(self._largest, float(apart.max(initial=0.0)))

    def report(self) -> str:
        """The largest difference of all steps."""
        return f"check: max abs difference from the whole model {self._largest:.1e}"


def describe(outputs: Values, answer: wire.Ok, sent: int, step: int) -> None:
    """Prints outputs and timings of a step."""
    print(f"step {step}: {sent} bytes sent")
    for name, output in outputs.items():
        first = np.array2string(output.ravel()[:4], precision=4, separator=", ")
        print(f"  {name}: {output.dtype} {list(output.shape)} = {first}")
    spent = answer.timings
    times = f"queue {spent.queue_us}, decode {spent.decode_us}, run {spent.run_us}"
    print(f"  service: {times}, encode {spent.encode_us} µs, batch of {spent.batch_size}")


async def requests(connection: Connection, bundle: Bundle, options: argparse.Namespace) -> None:
    """Hello, open, and the requests."""
    index, cut = bundle.cut(options.cut)
    welcome = await connection.hello(token_of(options.identity, options.token))
    print(f"welcome: {welcome.agent}, version {welcome.version}")
    model = bundle.manifest["model"]["name"]
    contract = await connection.open_contract(bundle.fingerprint, model)
    print(f"opened:  {model} {bundle.fingerprint.hex()[:12]} as contract {contract}")
    session = secrets.randbits(64) if bundle.states() else None
    checker = Checker(bundle, options.check) if options.check else None
    for step in range(options.steps):
        inputs = inputs_of(bundle, options, step)
        values = crossing(bundle, cut, inputs)
        tensors = encode(cut, values, options.codec)
        header = wire.RequestHeader(
            id=secrets.randbits(128),
            contract=contract,
            cut=index,
            deadline_us=int(options.deadline_s * 1e6),
            session=session,
            step=step if bundle.states() else 0,
            tensors=[header for header, _ in tensors],
        )
        payloads = [data for _, data in tensors]
        answer, replies = await connection.infer(header, payloads)
        outputs = made_here(bundle, values) | decode(cut, answer.tensors, replies)
        describe(outputs, answer, sum(map(len, payloads)), step)
        if checker:
            checker.compare(inputs, outputs)
    if checker:
        print(checker.report())


async def run(options: argparse.Namespace) -> None:
    """Connects and sends."""
    bundle = Bundle.read(options.bundle)
    where = options.connect, options.server_name, options.identity, options.device
    async with connected(*where) as connection:
        await requests(connection, bundle, options)


def main() -> int:
    """Exit status 0, or 1 with the reason on stderr."""
    # aioquic logs what closes a connection; the error says it too.
    logging.getLogger("quic").setLevel(logging.CRITICAL)
    try:
        asyncio.run(run(arguments()))
    except (BundleError, ServiceError, wire.WireError, ValueError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
