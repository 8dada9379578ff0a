//! Hello and welcome, on the first bidirectional stream, which the client opens.

mod client;
mod server;

pub use client::{ClientHandshake, ClientHandshakeEvent, HandshakeRefused};
pub use server::{ServerHandshake, ServerHandshakeEvent, ServerHello};

use bytes::Bytes;

use crate::control::PREFIX_BYTES;
use crate::{FrameReader, MAX_FRAME_BYTES, VersionRange, WireError};

/// Reads the prefix that every version can read, then one frame.
#[derive(Debug)]
struct PrefixedFrame {
    prefix: [u8; PREFIX_BYTES],
    filled: usize,
    versions: Option<VersionRange>,
    frame: FrameReader,
}

impl PrefixedFrame {
    fn new(what: &'static str) -> PrefixedFrame {
        PrefixedFrame {
            prefix: [0; PREFIX_BYTES],
            filled: 0,
            versions: None,
            frame: FrameReader::new(what, MAX_FRAME_BYTES),
        }
    }

    /// Takes the prefix from the front of `chunk`; afterwards [`Self::versions`] is there.
    fn read_prefix(&mut self, chunk: &mut Bytes) -> Result<(), WireError> {
        if self.versions.is_none() {
            let part = chunk.split_to(chunk.len().min(PREFIX_BYTES - self.filled));
            self.prefix[self.filled..self.filled + part.len()].copy_from_slice(&part);
            self.filled += part.len();
            if self.filled == PREFIX_BYTES {
                self.versions = Some(VersionRange::parse_prefix(&self.prefix)?);
            }
        }
        Ok(())
    }
}
