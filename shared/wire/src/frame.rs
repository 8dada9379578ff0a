//! A frame: `u32` little-endian length, then that many bytes of postcard.

use bytes::{Buf, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::WireError;

/// The most bytes that a frame's body may have, on any stream.
pub const MAX_FRAME_BYTES: u32 = 64 << 10;

/// Bytes of the length field.
pub const FRAME_LENGTH_BYTES: usize = 4;

/// A frame of `value`.
///
/// # Errors
/// [`WireError::FrameTooLong`] beyond [`MAX_FRAME_BYTES`].
pub fn encode_frame<T: Serialize>(what: &'static str, value: &T) -> Result<Bytes, WireError> {
    encode_frame_after(what, Vec::with_capacity(128), value)
}

/// As [`encode_frame`], behind the bytes that `out` holds already.
pub(crate) fn encode_frame_after<T: Serialize>(
    what: &'static str,
    mut out: Vec<u8>,
    value: &T,
) -> Result<Bytes, WireError> {
    let start = out.len();
    out.extend_from_slice(&[0; FRAME_LENGTH_BYTES]);
    let mut out = postcard::to_extend(value, out).map_err(|error| WireError::Malformed {
        what,
        problem: error.to_string(),
    })?;
    let body = (out.len() - start - FRAME_LENGTH_BYTES) as u64;
    let length = u32::try_from(body)
        .ok()
        .filter(|&length| length <= MAX_FRAME_BYTES)
        .ok_or(WireError::FrameTooLong {
            what,
            got: body,
            limit: MAX_FRAME_BYTES.into(),
        })?;
    out[start..start + FRAME_LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    Ok(Bytes::from(out))
}

/// Parses a frame's body; every byte must be used.
pub(crate) fn decode_body<T: DeserializeOwned>(
    what: &'static str,
    body: &[u8],
) -> Result<T, WireError> {
    let malformed = |problem: String| WireError::Malformed { what, problem };
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(malformed(format!(
            "{} of its {} bytes are left over",
            rest.len(),
            body.len()
        ))),
        Err(error) => Err(malformed(error.to_string())),
    }
}

/// Cuts frames out of chunks. Holds at most one frame, and of that only what has arrived.
#[derive(Debug)]
pub struct FrameReader {
    what: &'static str,
    limit: u32,
    partial: BytesMut,
}

impl FrameReader {
    /// A reader of frames of at most `limit` bytes (capped at [`MAX_FRAME_BYTES`]); `what` names
    /// them in errors.
    pub fn new(what: &'static str, limit: u32) -> FrameReader {
        FrameReader {
            what,
            limit: limit.min(MAX_FRAME_BYTES),
            partial: BytesMut::new(),
        }
    }

    /// Takes what it needs from the front of `chunk`; returns a frame's body once it is complete.
    /// A frame that lies whole in `chunk` is not copied.
    ///
    /// # Errors
    /// [`WireError::FrameTooLong`], as soon as the length field is there.
    pub fn read(&mut self, chunk: &mut Bytes) -> Result<Option<Bytes>, WireError> {
        if self.partial.is_empty() && chunk.len() >= FRAME_LENGTH_BYTES {
            let length = self.body_length(chunk)?;
            if chunk.len() - FRAME_LENGTH_BYTES >= length {
                chunk.advance(FRAME_LENGTH_BYTES);
                return Ok(Some(chunk.split_to(length)));
            }
        }
        self.fill(chunk, FRAME_LENGTH_BYTES);
        if self.partial.len() < FRAME_LENGTH_BYTES {
            return Ok(None);
        }
        let end = FRAME_LENGTH_BYTES + self.body_length(&self.partial)?;
        self.fill(chunk, end);
        if self.partial.len() < end {
            return Ok(None);
        }
        let mut frame = std::mem::take(&mut self.partial).freeze();
        frame.advance(FRAME_LENGTH_BYTES);
        Ok(Some(frame))
    }

    /// Whether no frame has begun.
    pub fn is_between_frames(&self) -> bool {
        self.partial.is_empty()
    }

    fn fill(&mut self, chunk: &mut Bytes, end: usize) {
        let wanted = end.saturating_sub(self.partial.len()).min(chunk.len());
        self.partial.extend_from_slice(&chunk.split_to(wanted));
    }

    /// `bytes` begins with a length field.
    fn body_length(&self, bytes: &[u8]) -> Result<usize, WireError> {
        let mut field = [0; FRAME_LENGTH_BYTES];
        field.copy_from_slice(&bytes[..FRAME_LENGTH_BYTES]);
        let length = u32::from_le_bytes(field);
        if length > self.limit {
            return Err(WireError::FrameTooLong {
                what: self.what,
                got: length.into(),
                limit: self.limit.into(),
            });
        }
        // At most 64 KiB, so it fits usize everywhere.
        Ok(length as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_comes_back_whatever_the_chunks() {
        let body: Vec<u8> = (0..200).collect();
        let stream = [
            encode_frame("test", &body).unwrap(),
            encode_frame("test", &7u8).unwrap(),
        ]
        .concat();
        for step in 1..stream.len() {
            let mut reader = FrameReader::new("test", MAX_FRAME_BYTES);
            let mut frames = Vec::new();
            for part in stream.chunks(step) {
                let mut chunk = Bytes::copy_from_slice(part);
                while let Some(frame) = reader.read(&mut chunk).unwrap() {
                    frames.push(frame);
                }
                assert!(chunk.is_empty());
            }
            assert!(reader.is_between_frames());
            assert_eq!(frames.len(), 2, "step {step}");
            assert_eq!(decode_body::<Vec<u8>>("test", &frames[0]).unwrap(), body);
            assert_eq!(decode_body::<u8>("test", &frames[1]).unwrap(), 7);
        }
    }

    #[test]
    fn a_long_frame_is_refused_at_its_length_field() {
        let mut reader = FrameReader::new("request header", 100);
        let mut chunk = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff]);
        let error = reader.read(&mut chunk).unwrap_err();
        assert_eq!(
            error.to_string(),
            "request header of 4294967295 bytes; at most 100 are allowed"
        );
        assert!(encode_frame("x", &vec![0u8; 64 << 10]).is_err());
    }

    #[test]
    fn bytes_left_over_in_a_body_are_refused() {
        let error = decode_body::<u8>("welcome", &[1, 2, 3]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "welcome does not parse: 2 of its 3 bytes are left over"
        );
    }
}
