//! Puts the chunks of a payload together, tensor by tensor.

use bytes::Bytes;

use crate::TensorHeader;

/// The most that is reserved for a tensor before its bytes have come.
pub const PREALLOCATE_BYTES: u64 = 1 << 20;

/// Collects payloads, one contiguous [`Bytes`] a tensor.
///
/// A tensor that came in one chunk is handed on as it is. Other chunks are copied once, into a
/// buffer that begins at [`PREALLOCATE_BYTES`] or the tensor's length, whichever is less, and
/// doubles with what has come: a peer makes the reader hold at most twice what it really sent.
/// (Keeping the chunks instead would let a peer that sends single bytes pin a datagram for each.)
#[derive(Debug)]
pub struct Assembler {
    lengths: Vec<u64>,
    done: Vec<Bytes>,
    partial: Vec<u8>,
}

impl Assembler {
    /// For the payloads of `tensors`, which have been checked against the limits.
    pub fn new(tensors: &[TensorHeader]) -> Assembler {
        Assembler {
            lengths: tensors.iter().map(|tensor| tensor.bytes).collect(),
            done: Vec::with_capacity(tensors.len()),
            partial: Vec::new(),
        }
    }

    /// Takes the next chunk of the tensor that is being read, as a reader hands it on.
    pub fn push(&mut self, chunk: Bytes) {
        self.skip_empty();
        let Some(&length) = self.lengths.get(self.done.len()) else {
            return;
        };
        let have = self.partial.len() as u64;
        if have == 0 && chunk.len() as u64 == length {
            self.done.push(chunk);
            return;
        }
        if have == 0 {
            // At most 1 MiB, so it fits usize everywhere.
            self.partial
                .reserve_exact(length.min(PREALLOCATE_BYTES) as usize);
        } else {
            self.grow(length, chunk.len());
        }
        self.partial.extend_from_slice(&chunk);
        if self.partial.len() as u64 == length {
            self.done
                .push(Bytes::from(std::mem::take(&mut self.partial)));
        }
    }

    /// The payloads, one a tensor; call it at the message's end.
    pub fn finish(mut self) -> Vec<Bytes> {
        self.skip_empty();
        self.done
    }

    /// Doubles the buffer when it is full, but never beyond the tensor's length.
    fn grow(&mut self, length: u64, more: usize) {
        let needed = self.partial.len().saturating_add(more);
        if needed > self.partial.capacity() {
            let doubled = self.partial.capacity().saturating_mul(2).max(needed);
            let target = usize::try_from(length).map_or(doubled, |length| doubled.min(length));
            self.partial
                .reserve_exact(target.saturating_sub(self.partial.len()));
        }
    }

    fn skip_empty(&mut self) {
        while self.lengths.get(self.done.len()) == Some(&0) {
            self.done.push(Bytes::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(bytes: u64) -> TensorHeader {
        TensorHeader {
            codec: 3,
            dtype: 2,
            shape: vec![bytes],
            bytes,
        }
    }

    #[test]
    fn whole_chunks_are_not_copied_and_empty_tensors_keep_their_place() {
        let mut assembler = Assembler::new(&[header(0), header(3), header(0), header(4)]);
        let whole = Bytes::from_static(b"abc");
        assembler.push(whole.clone());
        assembler.push(Bytes::from_static(b"de"));
        assembler.push(Bytes::from_static(b"fg"));
        let payloads = assembler.finish();
        assert_eq!(payloads, [&b""[..], b"abc", b"", b"defg"]);
        assert_eq!(payloads[1].as_ptr(), whole.as_ptr());
    }

    #[test]
    fn a_large_claim_reserves_little() {
        let mut assembler = Assembler::new(&[header(1 << 40)]);
        assembler.push(Bytes::from_static(b"x"));
        assert!(assembler.partial.capacity() as u64 <= PREALLOCATE_BYTES);
    }

    #[test]
    fn memory_is_at_most_twice_what_came() {
        let mut assembler = Assembler::new(&[header(1 << 40)]);
        let chunk = Bytes::from(vec![0; 100_000]);
        for count in 1..=100 {
            assembler.push(chunk.clone());
            let bound = (count * chunk.len() as u64 * 2).max(PREALLOCATE_BYTES);
            assert!(assembler.partial.capacity() as u64 <= bound);
        }
    }
}
