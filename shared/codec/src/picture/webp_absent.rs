//! In the place of libwebp, where the feature `webp` is off.

use super::Size;

pub(crate) const AVAILABLE: bool = false;

pub(super) fn encode(_: Size, _: u8, _: &[u8], _: &mut Vec<u8>) -> Result<(), String> {
    Err("this program was built without the encoder; build it with the feature `webp`".into())
}
