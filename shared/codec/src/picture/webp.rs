//! Lossy WebP by libwebp: no encoder in Rust has a licence that this project can take.

use webp::{Encoder, PixelLayout};

use super::Size;

/// The longest side of a WebP, in pixels.
const LONGEST: u64 = 16_383;

pub(crate) const AVAILABLE: bool = true;

pub(super) fn encode(
    size: Size,
    quality: u8,
    picture: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let side = |side: u64| match u32::try_from(side) {
        Ok(fits) if side <= LONGEST => Ok(fits),
        _ => Err(format!(
            "a WebP has at most {LONGEST} pixels a side, not {side}"
        )),
    };
    let (width, height) = (side(size.width)?, side(size.height)?);
    if size.bytes() != Some(picture.len() as u64) {
        return Err(format!("{} bytes are not {size}", picture.len()));
    }
    let encoder = Encoder::new(picture, PixelLayout::Rgb, width, height);
    let file = encoder
        .encode_simple(false, quality.into())
        .map_err(|error| format!("libwebp: {error:?}"))?;
    out.extend_from_slice(&file);
    Ok(())
}
