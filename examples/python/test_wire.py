"""Bytes of PROTOCOL.md, and payloads there and back: `python -m unittest`."""

import unittest

import numpy as np

import payload
import wire
from wire import Body, TensorHeader, WireError

# "A request in hex": the answer to it, without its length and payload.
ANSWER = bytes.fromhex("00 01 c8010ab81705 08 0340dc0b 01 00 01 020102 08")


class Messages(unittest.TestCase):
    """Frames and their fields."""

    def test_the_answer_of_the_document(self) -> None:
        expected = wire.Ok(
            id=1,
            timings=wire.Timings(200, 10, 3000, 5, 8),
            load=wire.Load(3, 64, 1500),
            tensors=[TensorHeader(codec=0, dtype=1, shape=(1, 2), payload_bytes=8)],
        )
        self.assertEqual(wire.answer(ANSWER), expected)

    def test_a_body_is_used_up_exactly(self) -> None:
        for wrong in (ANSWER[:-1], ANSWER + b"\0", b"\x02"):
            with self.assertRaises(WireError):
                wire.answer(wrong)

    def test_varints(self) -> None:
        encoded = bytes.fromhex("909eb8e8c0e1828589909cb0d080c1818202")
        number = 0x0102030405060708090A0B0C0D0E0F10
        self.assertEqual(wire.varint(number, 128), encoded)
        self.assertEqual(Body(encoded).uint(128), number)
        for beyond in (b"\xff\xff\x04", b"\x80\x80\x80\x00"):
            with self.assertRaises(WireError):
                Body(beyond).uint(16)

    def test_headers_are_checked_before_memory_is_taken(self) -> None:
        limits = wire.Limits(1000, 1000, 1000, 2, 3, 1, 65536, 1)
        fits = TensorHeader(0, 1, (1, 2), 8)
        wire.check_tensors([fits], 8, limits)
        wrong = [
            [fits] * 3,
            [fits, fits],
            [TensorHeader(0, 8, (1, 2), 8)],
            [TensorHeader(0, 1, (1, 1, 1, 1), 4)],
            [TensorHeader(0, 1, (0, 1 << 63, 2), 0)],
            [TensorHeader(0, 1, (1, 2), 7)],
            [TensorHeader(3, 7, (1 << 20,), 8)],
        ]
        for tensors in wrong:
            with self.assertRaises(WireError, msg=tensors):
                wire.check_tensors(tensors, 8, limits)


class Payloads(unittest.TestCase):
    """Codecs."""

    def test_lossless_codecs_give_back_what_went_in(self) -> None:
        random = np.random.default_rng(0)
        for name in payload.DTYPES:
            element = np.dtype(payload.DTYPES[name][1])
            values = random.integers(0, 2, (3, 5)).astype(element)
            for codec in ["raw"] if element.kind == "f" or name == "bf16" else ["raw", "packed"]:
                self.there_and_back(values, name, codec)

    def test_packed_takes_the_smallest_width(self) -> None:
        least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
        for first, last, width in [(-3, -3, 0), (-3, 252, 1), (-3, 253, 2), (least, most, 8)]:
            data = self.there_and_back(np.array([first, last]), "i64", "packed")
            self.assertEqual((data[8], len(data)), (width, 9 + 2 * width))

    def test_int8_is_within_half_a_level(self) -> None:
        values = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
        values[:, 1] = 0
        header, data = payload.encode(values, "f32", "int8", 1)
        scale = np.abs(values).max(axis=(0, 2)) / 127
        apart = np.abs(payload.decode(header, data, 1) - values).max(axis=(0, 2))
        self.assertTrue((apart <= 0.501 * scale).all(), f"{apart} at scales {scale}")

    def test_f16_and_empty_tensors(self) -> None:
        self.there_and_back(np.array([[0.5, np.inf, -2.0]], np.float32), "f32", "f16")
        for codec in payload.CODECS:
            dtype = "i64" if codec == "packed" else "f32"
            self.assertEqual(self.there_and_back(np.zeros((2, 0)), dtype, codec), b"")

    def test_a_payload_of_another_length_is_refused(self) -> None:
        for codec in payload.CODECS:
            dtype = "i64" if codec == "packed" else "f32"
            header, data = payload.encode(np.arange(6).reshape(2, 3), dtype, codec, 1)
            for wrong in (data[:-1], data + b"\0"):
                with self.assertRaises(WireError, msg=codec):
                    payload.decode(header, wrong, 1)

    def there_and_back(self, values: payload.Array, dtype: str, codec: str) -> bytes:
        header, data = payload.encode(values, dtype, codec, 1)
        np.testing.assert_array_equal(payload.decode(header, data, 1), values)
        return data


if __name__ == "__main__":
    unittest.main()
