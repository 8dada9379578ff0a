//! The partitions of a VP8 key frame (RFC 6386, sections 7 and 9), before a decoder makes room for
//! what they state.

/// Frame tag, start code, sizes.
const UNCODED: usize = 10;

/// Checks that the partitions lie within the frame.
pub(super) fn check(frame: &[u8]) -> Result<(), String> {
    let ends = "ends within its first partition";
    let (tag, coded) = (frame.first_chunk().ok_or(ends)?, frame.get(UNCODED..));
    let (first, rest) = coded
        .and_then(|coded| coded.split_at_checked(le24(*tag) >> 5))
        .ok_or(ends)?;
    let others = (1 << log2_partitions(first)) - 1;
    let (sizes, rest) = rest
        .split_at_checked(3 * others)
        .ok_or("ends within the sizes of its partitions")?;
    let (sizes, _) = sizes.as_chunks();
    let stated: usize = sizes.iter().map(|&size| le24(size)).sum();
    if stated > rest.len() {
        return Err(format!(
            "has {} bytes for partitions of {stated}",
            rest.len()
        ));
    }
    Ok(())
}

fn le24([low, middle, high]: [u8; 3]) -> usize {
    usize::from(low) | usize::from(middle) << 8 | usize::from(high) << 16
}

/// Reads the frame header up to the binary logarithm of the number of partitions for coefficients.
fn log2_partitions(first: &[u8]) -> u32 {
    let mut bits = Bits::new(first);
    // Colour space, clamping.
    bits.skip(2);
    if bits.flag() {
        let (has_map, has_features) = (bits.flag(), bits.flag());
        if has_features {
            // Absolute or not; a quantiser and a filter level, with a sign, of four segments.
            bits.skip(1);
            bits.skip_optional(4, 8);
            bits.skip_optional(4, 7);
        }
        if has_map {
            bits.skip_optional(3, 8);
        }
    }
    // The loop filter's type, level and sharpness, and its changes by reference and by mode.
    bits.skip(1 + 6 + 3);
    if bits.flag() && bits.flag() {
        bits.skip_optional(8, 7);
    }
    u32::from(bits.flag()) << 1 | u32::from(bits.flag())
}

/// The boolean decoder of RFC 6386, section 7, for bits that are as often 0 as 1.
struct Bits<'a> {
    rest: &'a [u8],
    /// Two bytes of the data, of which the first is compared.
    value: u32,
    range: u32,
    /// Bits of the second byte that were taken.
    taken: u32,
}

impl<'a> Bits<'a> {
    fn new(data: &'a [u8]) -> Bits<'a> {
        let mut bits = Bits {
            rest: data,
            value: 0,
            range: 255,
            taken: 0,
        };
        bits.value = bits.byte() << 8 | bits.byte();
        bits
    }

    /// The next byte; behind the end all are 0.
    fn byte(&mut self) -> u32 {
        let (byte, rest) = self.rest.split_first().unwrap_or((&0, &[]));
        self.rest = rest;
        u32::from(*byte)
    }

    fn flag(&mut self) -> bool {
        let split = 1 + ((self.range - 1) >> 1);
        let set = self.value >= split << 8;
        if set {
            self.range -= split;
            self.value -= split << 8;
        } else {
            self.range = split;
        }
        while self.range < 128 {
            self.range <<= 1;
            self.value <<= 1;
            self.taken += 1;
            if self.taken == 8 {
                self.taken = 0;
                self.value |= self.byte();
            }
        }
        set
    }

    fn skip(&mut self, bits: u32) {
        for _ in 0..bits {
            self.flag();
        }
    }

    /// `count` fields of `bits` bits, each behind a flag that says whether it is there.
    fn skip_optional(&mut self, count: u32, bits: u32) {
        for _ in 0..count {
            if self.flag() {
                self.skip(bits);
            }
        }
    }
}
