//! JPEG (ITU-T T.81): baseline, Huffman coded, 8 bits a sample, grey or YCbCr, in one scan.
//!
//! What is left out costs more than it brings: a progressive file can hold thousands of scans of
//! the whole picture, and decoders differ on components in scans of their own.

use jpeg_encoder::{ChromaSubsamplingMethod, ColorType, Encoder, SamplingFactor};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::{Size, be16};

/// From this quality on colours have the resolution of the brightness; below, half of it in each
/// direction, as in most cameras and libraries.
const FULL_COLOR: u8 = 90;

pub(super) fn encode(
    size: Size,
    quality: u8,
    picture: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let side = |side: u64| {
        u16::try_from(side)
            .map_err(|_| format!("a JPEG has at most 65535 pixels a side, not {side}"))
    };
    let (width, height) = (side(size.width)?, side(size.height)?);
    let mut encoder = Encoder::new(out, quality);
    encoder.set_sampling_factor(if quality < FULL_COLOR {
        SamplingFactor::F_2_2
    } else {
        SamplingFactor::F_1_1
    });
    encoder.set_chroma_subsampling_method(ChromaSubsamplingMethod::Average);
    let color = if size.channels == 1 {
        ColorType::Luma
    } else {
        ColorType::Rgb
    };
    encoder
        .encode(picture, width, height, color)
        .map_err(|error| error.to_string())
}

/// One baseline picture of this size, in one scan, with its end mark.
pub(super) fn check(size: Size, file: &[u8]) -> Result<(), String> {
    let ends = "ends within its headers";
    let mut rest = file.strip_prefix(b"\xff\xd8").ok_or("has no JPEG header")?;
    let mut components = None;
    loop {
        let Some((&0xff, after)) = rest.split_first() else {
            return Err("has no marker where one is due".into());
        };
        // A marker may be preceded by any number of fill bytes.
        let fill = after.iter().take_while(|&&byte| byte == 0xff).count();
        let (&marker, segment) = after[fill..].split_first().ok_or(ends)?;
        let length = usize::from(be16(segment, 0).ok_or(ends)?);
        if length < 2 {
            return Err(format!("has a segment of {length} bytes"));
        }
        let (segment, behind) = segment.split_at_checked(length).ok_or(ends)?;
        match marker {
            0xc0 if components.is_some() => return Err("has two frames".into()),
            0xc0 => components = Some(frame(size, segment).ok_or(ends)??),
            // Tables, the restart interval, application data, comments.
            0xc4 | 0xdb | 0xdd | 0xe0..=0xef | 0xfe => {}
            0xda => {
                let components = components.ok_or("has a scan before its frame header")?;
                return match segment.get(2) {
                    Some(&count) if count == components => scan(behind),
                    Some(&count) => Err(format!(
                        "has a scan of {count} of its {components} components; expected one of all"
                    )),
                    None => Err(ends.into()),
                };
            }
            other => {
                return Err(format!(
                    "has the marker 0xff{other:02x}; expected a baseline JPEG (0xffc0)"
                ));
            }
        }
        rest = behind;
    }
}

/// The data of a scan, and the end mark as the last of the file.
fn scan(mut rest: &[u8]) -> Result<(), String> {
    while let Some(at) = rest.iter().position(|&byte| byte == 0xff) {
        rest = &rest[at + 1..];
        match rest {
            // A byte 0xff of the data, a restart mark.
            [0x00 | 0xd0..=0xd7, behind @ ..] => rest = behind,
            // A fill byte before a marker.
            [0xff, ..] => {}
            [0xd9] => return Ok(()),
            [0xd9, more @ ..] => return Err(format!("has {} bytes behind its end", more.len())),
            [marker, ..] => {
                return Err(format!(
                    "has the marker 0xff{marker:02x} behind its scan; expected the end, 0xffd9"
                ));
            }
            [] => break,
        }
    }
    Err("has no end mark".into())
}

/// The number of components that the frame header states; `None` where it is too short.
fn frame(size: Size, segment: &[u8]) -> Option<Result<u8, String>> {
    let (&depth, &components) = (segment.get(2)?, segment.get(7)?);
    let got = Size {
        height: be16(segment, 3)?.into(),
        width: be16(segment, 5)?.into(),
        channels: components.into(),
    };
    if depth != 8 {
        return Some(Err(format!("has {depth} bits a sample; expected 8")));
    }
    Some(size.check(got).map(|()| components))
}

/// Decodes a file that was checked.
pub(super) fn decode(size: Size, file: &[u8], dst: &mut [u8]) -> Result<(), String> {
    let color = if size.channels == 1 {
        ColorSpace::Luma
    } else {
        ColorSpace::RGB
    };
    let side = |side: u64| usize::try_from(side).unwrap_or(0);
    let (width, height) = (side(size.width), side(size.height));
    let options = DecoderOptions::default()
        .set_max_width(width)
        .set_max_height(height)
        .set_strict_mode(true)
        .jpeg_set_max_scans(1)
        .jpeg_set_out_colorspace(color);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options);
    decoder
        .decode_headers()
        .map_err(|error| error.to_string())?;
    if decoder.dimensions() != Some((width, height))
        || decoder.output_buffer_size() != Some(dst.len())
    {
        return Err("is another picture than its header says".into());
    }
    decoder.decode_into(dst).map_err(|error| error.to_string())
}
