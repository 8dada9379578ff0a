"""What a device reads of a bundle: `manifest.json` ("The manifest" of PROTOCOL.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3

from payload import DTYPES, Array


class BundleError(Exception):
    """A bundle, a cut or an input that does not fit."""


@dataclass(frozen=True)
class Bundle:
    """A bundle's folder, its manifest, and the fingerprint that both sides present."""

    folder: Path
    manifest: dict[str, Any]
    fingerprint: bytes

    @classmethod
    def read(cls, folder: Path) -> Bundle:
        """Reads the manifest; the fingerprint is of its bytes as they stand in the file."""
        data = (folder / "manifest.json").read_bytes()
        manifest = json.loads(data)
        if manifest["format"] != 1:
            raise BundleError(f"{folder}: manifest of format {manifest['format']}, not 1")
        return cls(folder, manifest, blake3(data).digest())

    def cut(self, wanted: str | None) -> tuple[int, dict[str, Any]]:
        """Index and entry of a cut; the default one where none is wanted."""
        wanted = wanted or self.manifest["default_cut"]
        for index, cut in enumerate(self.manifest["cuts"]):
            if cut["id"] == wanted:
                return index, cut
        ids = ", ".join(cut["id"] for cut in self.manifest["cuts"])
        raise BundleError(f"the bundle has no cut {wanted}; it has {ids}")

    def states(self) -> dict[str, str]:
        """Inputs that are the last step's outputs, and which."""
        return {state["input"]: state["output"] for state in self.manifest.get("states", [])}

    def draw(self, random: np.random.Generator) -> dict[str, Array]:
        """Random values for every input of the model but its states, of the reference's sizes."""
        sizes = dict(self._sizes())
        drawn = {}
        for spec in self.manifest["inputs"]:
            if spec["name"] not in self.states():
                shape = [
                    dim if isinstance(dim, int) else sizes.get(dim, 1) for dim in spec["shape"]
                ]
                drawn[spec["name"]] = _draw(random, spec["dtype"], shape)
        return drawn

    def zero_states(self) -> dict[str, Array]:
        """What a session begins with."""
        specs = [spec for spec in self.manifest["inputs"] if spec["name"] in self.states()]
        return {s["name"]: np.zeros(s["shape"], DTYPES[s["dtype"]][1]) for s in specs}

    def head(self, cut: dict[str, Any]) -> list[Path]:
        """The models that the device runs before a cut, in order."""
        stages = self.manifest["stages"][: cut["stage"]]
        if any(name in self.states() for stage in stages for name in stage["inputs"]):
            raise BundleError("the device's stages have a state, which this example does not keep")
        return [self.folder / stage["edge"] for stage in stages]

    def _sizes(self) -> Iterator[tuple[str, int]]:
        """Sizes that the symbols of shapes had when the bundle was made."""
        for cut in self.manifest["cuts"]:
            for value in cut["crossing"]:
                pairs = zip(value["spec"]["shape"], value["reference"], strict=True)
                yield from (pair for pair in pairs if isinstance(pair[0], str))


def _draw(random: np.random.Generator, dtype: str, shape: list[int]) -> Array:
    element = np.dtype(DTYPES[dtype][1])
    if element.kind == "f":
        return random.standard_normal(shape).astype(element)
    # Small integers are valid as pixels, token ids and masks alike.
    return random.integers(0, 2, shape).astype(element)
