//! u8 pictures [N, H, W, C], each as a file of a picture format.
//!
//! A payload is, picture after picture, the length of its file (u32) and the file. Files come from
//! the network: before pixels are allocated, each is found to hold one picture of the size, the
//! channels and the depth that were declared, in a form that every decoder reads alike.

mod jpeg;
mod png;
#[cfg(feature = "webp")]
mod webp;
#[cfg(not(feature = "webp"))]
#[path = "webp_absent.rs"]
mod webp;
mod webp_file;

use seamline_plan::CodecSpec;

use crate::error::{self, CodecError};

pub(crate) use webp::AVAILABLE as CAN_ENCODE_WEBP;

/// Bytes of the length before each file.
const PREFIX: usize = 4;

/// The least bytes of a file: the headers of a WebP, the shortest of the formats'.
const LEAST_FILE: u64 = 30;

/// Bytes that a file may have beyond its samples, their share for stored blocks aside: headers and
/// tables.
const FILE_SLACK: u64 = 1024;

/// By how much the quality is lowered where a file would be longer than allowed.
const QUALITY_STEP: u8 = 10;

/// A picture's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) height: u64,
    pub(crate) width: u64,
    pub(crate) channels: u64,
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Size {
            height,
            width,
            channels,
        } = self;
        write!(f, "{width} × {height} pixels of {channels} channels")
    }
}

impl Size {
    fn check(self, got: Size) -> Result<(), String> {
        if got == self {
            return Ok(());
        }
        Err(format!("has {got}; expected {self}"))
    }

    /// Bytes of the samples.
    fn bytes(self) -> Option<u64> {
        self.height
            .checked_mul(self.width)?
            .checked_mul(self.channels)
    }

    /// Bytes of a file at most: the samples and a filter byte a row, as stored blocks, and headers.
    fn most(self) -> Option<u64> {
        let rows = self.bytes()?.checked_add(self.height)?;
        rows.checked_add(rows / 64)?.checked_add(FILE_SLACK)
    }
}

/// The pictures of a tensor: how many, and their size. `None` where the shape is not that of
/// pictures.
pub(crate) fn pictures<D: Copy + TryInto<u64>>(shape: &[D]) -> Option<(u64, Size)> {
    let &[count, height, width, channels] = shape else {
        return None;
    };
    let size = Size {
        height: height.try_into().ok()?,
        width: width.try_into().ok()?,
        channels: channels.try_into().ok()?,
    };
    Some((count.try_into().ok()?, size))
}

/// The least and the most bytes of a payload of `count` pictures. `None` beyond 64 bits.
pub(crate) fn payload_range(count: u64, size: Size) -> Option<(u64, u64)> {
    let of = |file: u64| file.checked_add(PREFIX as u64)?.checked_mul(count);
    Some((of(LEAST_FILE)?, of(size.most()?)?))
}

/// Appends the payload of the pictures `src`.
pub(crate) fn encode(
    spec: &CodecSpec,
    size: Size,
    src: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    let failed = |problem| error::encoding(spec, problem);
    let bytes = size.bytes().and_then(|bytes| usize::try_from(bytes).ok());
    let Some(bytes) = bytes.filter(|&bytes| bytes > 0) else {
        return Ok(());
    };
    for picture in src.chunks_exact(bytes) {
        let start = out.len();
        out.extend_from_slice(&[0; PREFIX]);
        let file = start + PREFIX;
        encode_file(spec, size, picture, out).map_err(failed)?;
        let length = u32::try_from(out.len() - file)
            .map_err(|_| failed("a file has at most 4 GiB".into()))?;
        out[start..file].copy_from_slice(&length.to_le_bytes());
    }
    Ok(())
}

/// Appends a file that is no longer than [`Size::most`]; where noise makes it so, at the next lower
/// quality.
fn encode_file(
    spec: &CodecSpec,
    size: Size,
    picture: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let start = out.len();
    let mut spec = spec.clone();
    loop {
        match spec {
            CodecSpec::Jpeg { quality } => jpeg::encode(size, quality, picture, out)?,
            CodecSpec::Webp { quality } => webp::encode(size, quality, picture, out)?,
            _ => png::encode(size, picture, out)?,
        }
        if size.most() >= Some((out.len() - start) as u64) {
            return Ok(());
        }
        out.truncate(start);
        match &mut spec {
            CodecSpec::Jpeg { quality } | CodecSpec::Webp { quality } if *quality > 1 => {
                *quality = quality.saturating_sub(QUALITY_STEP).max(1);
            }
            _ => return Err(format!("takes more than {:?} bytes", size.most())),
        }
    }
}

/// Checks the framing and the headers of every file, with no allocation.
pub(crate) fn check(
    spec: &CodecSpec,
    count: u64,
    size: Size,
    payload: &[u8],
) -> Result<(), CodecError> {
    let mut rest = payload;
    for index in 0..count {
        let check = |file| match spec {
            CodecSpec::Jpeg { .. } => jpeg::check(size, file),
            CodecSpec::Webp { .. } => webp_file::check(size, file),
            _ => png::check(size, file),
        };
        rest = split(rest)
            .and_then(|(file, behind)| check(file).map(|()| behind))
            .map_err(|problem| error::picture(spec, index, problem))?;
    }
    if rest.is_empty() {
        return Ok(());
    }
    let problem = format!("is followed by {} bytes more", rest.len());
    Err(error::picture(spec, count.saturating_sub(1), problem))
}

/// Decodes a payload that was checked into `dst`.
pub(crate) fn decode(
    spec: &CodecSpec,
    size: Size,
    payload: &[u8],
    dst: &mut [u8],
) -> Result<(), CodecError> {
    let bytes = size.bytes().and_then(|bytes| usize::try_from(bytes).ok());
    let Some(bytes) = bytes.filter(|&bytes| bytes > 0) else {
        return Ok(());
    };
    let mut rest = payload;
    for (index, dst) in (0..).zip(dst.chunks_exact_mut(bytes)) {
        let mut decode = |file| match spec {
            CodecSpec::Jpeg { .. } => jpeg::decode(size, file, dst),
            CodecSpec::Webp { .. } => webp_file::decode(file, dst),
            _ => png::decode(size, file, dst),
        };
        rest = split(rest)
            .and_then(|(file, behind)| decode(file).map(|()| behind))
            .map_err(|problem| error::picture(spec, index, problem))?;
    }
    Ok(())
}

/// The first file, and what follows it.
fn split(payload: &[u8]) -> Result<(&[u8], &[u8]), String> {
    let missing = || "is missing: the payload ends before its length".to_owned();
    let (length, rest) = payload.split_first_chunk().ok_or_else(missing)?;
    let length = u32::from_le_bytes(*length);
    usize::try_from(length)
        .ok()
        .and_then(|length| rest.split_at_checked(length))
        .ok_or_else(|| format!("is {length} bytes long, and {} follow", rest.len()))
}

/// The big-endian numbers of PNG and JPEG.
fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*bytes))
}
