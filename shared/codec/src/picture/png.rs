//! PNG (W3C Portable Network Graphics, third edition): 8 bits a sample, grey or RGB.

use std::io::Cursor;

use ::png::{
    BitDepth, ColorType, DecodeOptions, Decoder, DeflateCompression, Encoder, Filter, Limits,
};

use super::{Size, be32};

const SIGNATURE: &[u8; 8] = b"\x89PNG\r\n\x1a\n";

/// Bytes of a chunk beside its data: length, type, checksum.
const CHUNK: usize = 12;

/// deflate's level: within 2 % of level 3 on photographs at a third of its time, and half the
/// length of the faster encoders of the crate on pages of text.
const LEVEL: u8 = 1;

/// Memory that a decoder may take beside two rows and the file.
const DECODER_BYTES: usize = 1 << 16;

fn color(size: Size) -> ColorType {
    if size.channels == 1 {
        ColorType::Grayscale
    } else {
        ColorType::Rgb
    }
}

pub(super) fn encode(size: Size, picture: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let side = |side: u64| {
        let fits = u32::try_from(side).ok().filter(|&side| side < 1 << 31);
        fits.ok_or_else(|| format!("a PNG has at most 2^31 − 1 pixels a side, not {side}"))
    };
    let mut encoder = Encoder::new(out, side(size.width)?, side(size.height)?);
    encoder.set_color(color(size));
    encoder.set_depth(BitDepth::Eight);
    encoder.set_deflate_compression(DeflateCompression::Level(LEVEL));
    encoder.set_filter(Filter::Adaptive);
    let text = |error: ::png::EncodingError| error.to_string();
    let mut writer = encoder.write_header().map_err(text)?;
    writer.write_image_data(picture).map_err(text)?;
    writer.finish().map_err(text)
}

/// One still picture of this size, of 8 bits, not interlaced, and nothing behind it.
pub(super) fn check(size: Size, file: &[u8]) -> Result<(), String> {
    let header = "has no PNG header";
    let rest = file.strip_prefix(SIGNATURE).ok_or(header)?;
    let data = rest.strip_prefix(b"\0\0\0\rIHDR").ok_or(header)?;
    let (Some(width), Some(height), Some(&[depth, color, _, _, interlace])) = (
        be32(data, 0),
        be32(data, 4),
        data.get(8..).and_then(|kinds| kinds.first_chunk()),
    ) else {
        return Err(header.into());
    };
    let channels = match (depth, color, interlace) {
        (8, 0, 0) => 1,
        (8, 2, 0) => 3,
        _ => {
            return Err(format!(
                "has depth {depth}, colour type {color} and interlace {interlace}; expected depth 8, \
                 colour type 0 or 2, no interlace"
            ));
        }
    };
    size.check(Size {
        height: height.into(),
        width: width.into(),
        channels,
    })?;
    check_chunks(rest)
}

/// Chunks up to the end of the file, of one picture.
fn check_chunks(mut rest: &[u8]) -> Result<(), String> {
    loop {
        let ends = "ends within a chunk";
        let length = be32(rest, 0).ok_or(ends)?;
        let name = rest.get(4..8).ok_or(ends)?;
        if matches!(name, b"acTL" | b"fcTL" | b"fdAT") {
            return Err("is animated; expected one frame".into());
        }
        let whole = usize::try_from(length).ok();
        let whole = whole.and_then(|length| length.checked_add(CHUNK));
        let behind = whole.and_then(|whole| rest.get(whole..)).ok_or(ends)?;
        if name == b"IEND" {
            return match behind {
                [] => Ok(()),
                more => Err(format!("has {} bytes behind its end", more.len())),
            };
        }
        rest = behind;
    }
}

/// Decodes a file that was checked. Data behind the last row is not looked at, so that it cannot
/// be made to unpack for long.
pub(super) fn decode(size: Size, file: &[u8], dst: &mut [u8]) -> Result<(), String> {
    let text = |error: ::png::DecodingError| error.to_string();
    let row = usize::try_from(size.width.saturating_mul(size.channels));
    let row = row.map_err(|_| "has rows that are too long")?;
    let mut options = DecodeOptions::default();
    options.set_ignore_text_chunk(true);
    options.set_ignore_iccp_chunk(true);
    let mut decoder = Decoder::new_with_options(Cursor::new(file), options);
    let bytes = row.saturating_mul(2).saturating_add(DECODER_BYTES);
    let bytes = bytes.saturating_add(file.len());
    decoder.set_limits(Limits { bytes });
    let mut reader = decoder.read_info().map_err(text)?;
    if reader.output_buffer_size() != Some(dst.len()) || reader.info().interlaced {
        return Err("is another picture than its header says".into());
    }
    for row in dst.chunks_exact_mut(row) {
        reader.read_row(row).map_err(text)?.ok_or("lacks rows")?;
    }
    Ok(())
}
