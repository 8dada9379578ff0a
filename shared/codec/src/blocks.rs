//! Typed views of bytes at any address: the slice itself where it is aligned, else a block at a
//! time, copied through the stack.

use bytemuck::{AnyBitPattern, NoUninit, Pod};

/// Elements of a block.
const BLOCK: usize = 512;

/// Calls `visit` with the elements of `bytes`, in order, and the index of the first of each call.
/// Bytes after the last whole element are left out.
pub(crate) fn read<T: Pod>(bytes: &[u8], mut visit: impl FnMut(usize, &[T])) {
    if let Ok(elements) = bytemuck::try_cast_slice(bytes) {
        return visit(0, elements);
    }
    let size = std::mem::size_of::<T>();
    let mut block = [T::zeroed(); BLOCK];
    for (index, bytes) in bytes.chunks(BLOCK * size).enumerate() {
        let elements = &mut block[..bytes.len() / size];
        as_bytes(elements).copy_from_slice(&bytes[..bytes.len() / size * size]);
        visit(index * BLOCK, elements);
    }
}

/// Calls `fill` for every element of `bytes`, in order, with the index of the first of each call.
/// `fill` sets all of the elements that it is given. Bytes after the last whole element are left as
/// they are.
pub(crate) fn write<T: Pod>(bytes: &mut [u8], mut fill: impl FnMut(usize, &mut [T])) {
    if let Ok(elements) = bytemuck::try_cast_slice_mut(bytes) {
        return fill(0, elements);
    }
    let size = std::mem::size_of::<T>();
    let mut block = [T::zeroed(); BLOCK];
    for (index, bytes) in bytes.chunks_mut(BLOCK * size).enumerate() {
        let elements = &mut block[..bytes.len() / size];
        fill(index * BLOCK, elements);
        let elements = as_bytes(elements);
        bytes[..elements.len()].copy_from_slice(elements);
    }
}

fn as_bytes<T: NoUninit + AnyBitPattern>(elements: &mut [T]) -> &mut [u8] {
    bytemuck::cast_slice_mut(elements)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unaligned_bytes_give_the_same_elements_in_order() {
        let count = 2 * BLOCK + 3;
        let values: Vec<u32> = (0..).take(count).collect();
        for offset in 0..4 {
            let mut bytes = vec![0xee; offset + count * 4 + 1];
            let last = bytes.len() - 1;
            write::<u32>(&mut bytes[offset..last], |at, elements| {
                elements.copy_from_slice(&values[at..at + elements.len()]);
            });
            assert_eq!(bytes[last], 0xee, "offset {offset}");
            let mut back = Vec::new();
            read::<u32>(&bytes[offset..last], |at, elements| {
                assert_eq!(at, back.len());
                back.extend_from_slice(elements);
            });
            assert_eq!(back, values, "offset {offset}");
        }
    }
}
