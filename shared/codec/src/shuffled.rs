//! Any elements by Zstandard (RFC 8878), their bytes sorted by significance: the sign and exponent
//! of floats repeat, their last bits do not, and each is best on its own.

use zstd::zstd_safe;

use crate::error::CodecError;

/// Zstandard's level: on activations, higher ones gain 1 % and take three times as long.
const LEVEL: i32 = 3;

/// The least bytes of a frame that is not empty.
pub(crate) const LEAST: u64 = 9;

/// Elements whose bytes are sorted at a time, so that they stay in the cache.
const BLOCK: usize = 1024;

/// The most bytes of `bytes` bytes, by `ZSTD_COMPRESSBOUND`: stored blocks and headers.
pub(crate) fn most(bytes: u64) -> Option<u64> {
    bytes.checked_add(bytes / 256)?.checked_add(64)
}

/// Appends the payload of the elements `src`, of `size` bytes each.
pub(crate) fn encode(size: usize, src: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    if src.is_empty() {
        return Ok(());
    }
    let text = |error: std::io::Error| error.to_string();
    let mut planes = Vec::new();
    let planes: &[u8] = match size {
        2 | 4 | 8 => {
            resize(&mut planes, src.len())?;
            match size {
                2 => shuffle::<2>(src, &mut planes),
                4 => shuffle::<4>(src, &mut planes),
                _ => shuffle::<8>(src, &mut planes),
            }
            &planes
        }
        _ => src,
    };
    let start = out.len();
    out.resize(start + zstd_safe::compress_bound(src.len()), 0);
    let mut compressor = zstd::bulk::Compressor::new(LEVEL).map_err(text)?;
    let written = compressor.compress_to_buffer(planes, &mut out[start..]);
    out.truncate(start + written.map_err(text)?);
    Ok(())
}

/// Checks that the payload is one frame, of `bytes` bytes when decoded.
pub(crate) fn check(bytes: u64, payload: &[u8]) -> Result<(), CodecError> {
    let wrong = |problem: String| Err(CodecError::Zstd { problem });
    match zstd_safe::get_frame_content_size(payload) {
        Ok(Some(stated)) if stated == bytes => {}
        Ok(Some(stated)) => {
            return wrong(format!(
                "the frame states {stated} bytes; the tensor has {bytes}"
            ));
        }
        Ok(None) => return wrong("the frame does not state its size".into()),
        Err(_) => return wrong("the payload does not begin with a frame".into()),
    }
    match zstd_safe::find_frame_compressed_size(payload) {
        Ok(length) if length == payload.len() => Ok(()),
        Ok(length) => wrong(format!(
            "the frame has {length} bytes of the payload's {}",
            payload.len()
        )),
        Err(code) => wrong(zstd_safe::get_error_name(code).into()),
    }
}

/// Decodes a payload that was checked into `dst`, elements of `size` bytes each.
pub(crate) fn decode(size: usize, payload: &[u8], dst: &mut [u8]) -> Result<(), String> {
    if dst.is_empty() {
        return Ok(());
    }
    if !matches!(size, 2 | 4 | 8) {
        return decompress(payload, dst);
    }
    let mut planes = Vec::new();
    resize(&mut planes, dst.len())?;
    decompress(payload, &mut planes)?;
    match size {
        2 => unshuffle::<2>(&planes, dst),
        4 => unshuffle::<4>(&planes, dst),
        _ => unshuffle::<8>(&planes, dst),
    }
    Ok(())
}

fn decompress(payload: &[u8], dst: &mut [u8]) -> Result<(), String> {
    let written = zstd::bulk::decompress_to_buffer(payload, dst);
    match written.map_err(|error| error.to_string())? {
        all if all == dst.len() => Ok(()),
        some => Err(format!("the frame holds {some} bytes of {}", dst.len())),
    }
}

fn resize(planes: &mut Vec<u8>, len: usize) -> Result<(), String> {
    planes
        .try_reserve_exact(len)
        .map_err(|error| error.to_string())?;
    planes.resize(len, 0);
    Ok(())
}

/// Byte `k` of element `i` goes to `k × count + i`.
fn shuffle<const SIZE: usize>(src: &[u8], planes: &mut [u8]) {
    let (elements, _) = src.as_chunks::<SIZE>();
    for (block, elements) in elements.chunks(BLOCK).enumerate() {
        for (byte, plane) in planes.chunks_exact_mut(src.len() / SIZE).enumerate() {
            let plane = &mut plane[block * BLOCK..][..elements.len()];
            for (out, element) in plane.iter_mut().zip(elements) {
                *out = element[byte];
            }
        }
    }
}

fn unshuffle<const SIZE: usize>(planes: &[u8], dst: &mut [u8]) {
    let count = dst.len() / SIZE;
    let (elements, _) = dst.as_chunks_mut::<SIZE>();
    for (block, elements) in elements.chunks_mut(BLOCK).enumerate() {
        for (byte, plane) in planes.chunks_exact(count).enumerate() {
            let plane = &plane[block * BLOCK..][..elements.len()];
            for (element, &value) in elements.iter_mut().zip(plane) {
                element[byte] = value;
            }
        }
    }
}
