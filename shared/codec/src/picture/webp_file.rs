//! WebP (RFC 9649), as it comes from the network: the simple lossy form, one VP8 key frame.

use std::io::Cursor;

use image_webp::WebPDecoder;

use super::{Size, vp8};

/// RIFF header, header of the only chunk.
const BEFORE_FRAME: usize = 20;

/// RIFF header, chunk header, frame header.
const HEADERS: usize = 30;

/// One key frame of this size and nothing else: no alpha, no animation, no metadata. (In the
/// extended form the frame may be of another size than the canvas.)
pub(super) fn check(size: Size, file: &[u8]) -> Result<(), String> {
    let Some(&headers) = file.first_chunk::<HEADERS>() else {
        return Err(format!(
            "has {} bytes; a WebP has {HEADERS} at least",
            file.len()
        ));
    };
    let le32 = |at: usize| {
        let bytes = [
            headers[at],
            headers[at + 1],
            headers[at + 2],
            headers[at + 3],
        ];
        u64::from(u32::from_le_bytes(bytes))
    };
    let le16 = |at: usize| u16::from_le_bytes([headers[at], headers[at + 1]]);
    if &headers[..4] != b"RIFF" || &headers[8..12] != b"WEBP" {
        return Err("has no WebP header".into());
    }
    if &headers[12..16] != b"VP8 " {
        return Err(format!(
            "begins with the chunk {:?}; expected `VP8 `, the simple lossy form",
            String::from_utf8_lossy(&headers[12..16])
        ));
    }
    let (riff, chunk) = (le32(4), le32(16));
    let length = file.len() as u64;
    // A chunk is padded to an even length.
    if riff + 8 != length || chunk + chunk % 2 + 20 != length {
        return Err(format!(
            "has {length} bytes; its headers state {} and {}",
            riff + 8,
            chunk + chunk % 2 + 20
        ));
    }
    if headers[20] & 1 != 0 || headers[23..26] != [0x9d, 0x01, 0x2a] {
        return Err("has no key frame".into());
    }
    let (width, height) = (le16(26), le16(28));
    if (width | height) >> 14 != 0 {
        return Err("asks to be scaled".into());
    }
    size.check(Size {
        height: height.into(),
        width: width.into(),
        channels: 3,
    })?;
    // Without the byte of padding, which the lengths above leave.
    let padding = usize::from(chunk % 2 == 1);
    vp8::check(&file[BEFORE_FRAME..file.len() - padding])
}

/// Decodes a file that was checked.
pub(super) fn decode(file: &[u8], dst: &mut [u8]) -> Result<(), String> {
    let text = |error: image_webp::DecodingError| error.to_string();
    let mut decoder = WebPDecoder::new(Cursor::new(file)).map_err(text)?;
    if decoder.output_buffer_size() != Some(dst.len()) {
        return Err("is another picture than its header says".into());
    }
    decoder.read_image(dst).map_err(text)
}
