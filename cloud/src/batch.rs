//! Requests joined into one batch and the answer split again, along each value's batch axis.

use bytes::Bytes;
use seamline_plan::{DType, Tensor, TensorError};

/// Bytes before the batch axis (`outer` blocks) and bytes of one row in each block.
struct Strides {
    outer: usize,
    row: usize,
}

fn strides(dtype: DType, shape: &[usize], axis: usize) -> Strides {
    Strides {
        outer: shape[..axis].iter().product(),
        row: shape[axis + 1..].iter().product::<usize>() * dtype.size(),
    }
}

/// A batch under construction: one value of all its requests, joined along `axis`.
pub(crate) struct Joiner {
    dtype: DType,
    shape: Vec<usize>,
    axis: usize,
    data: Vec<u64>,
    filled: usize,
}

impl Joiner {
    /// Room for `rows` rows of a value whose shape is `shape` apart from its size along `axis`.
    ///
    /// # Errors
    /// [`TensorError::Overflow`].
    pub(crate) fn new(
        dtype: DType,
        shape: &[usize],
        axis: usize,
        rows: usize,
    ) -> Result<Joiner, TensorError> {
        let mut shape = shape.to_vec();
        shape[axis] = rows;
        let Some(bytes) = Tensor::byte_len(dtype, &shape) else {
            return Err(TensorError::Overflow { dtype, shape });
        };
        // u64 storage keeps the elements aligned for every dtype.
        Ok(Joiner { dtype, shape, axis, data: vec![0; bytes.div_ceil(8)], filled: 0 })
    }

    /// Adds the next `rows` rows. Where the batch axis is the outermost, `fill` writes them in
    /// place; elsewhere it writes them to a buffer that is then interleaved.
    ///
    /// # Errors
    /// What `fill` returns; the batch is then unusable.
    pub(crate) fn add<E>(
        &mut self,
        rows: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Strides { outer, row } = strides(self.dtype, &self.shape, self.axis);
        let all = self.shape[self.axis];
        let bytes = bytemuck::cast_slice_mut::<u64, u8>(&mut self.data);
        if outer == 1 {
            fill(&mut bytes[self.filled * row..(self.filled + rows) * row])?;
        } else {
            let mut words = vec![0u64; (outer * rows * row).div_ceil(8)];
            let part = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..outer * rows * row];
            fill(part)?;
            for (block, part) in part.chunks_exact((rows * row).max(1)).enumerate() {
                let start = (block * all + self.filled) * row;
                bytes[start..start + part.len()].copy_from_slice(part);
            }
        }
        self.filled += rows;
        Ok(())
    }

    /// The joined tensor.
    ///
    /// # Errors
    /// None in practice: the buffer was made for the shape.
    pub(crate) fn finish(self) -> Result<Tensor, TensorError> {
        let bytes = Tensor::byte_len(self.dtype, &self.shape).unwrap_or_default();
        let words = Tensor::from_vec(vec![self.data.len()], self.data)?;
        Tensor::new(self.dtype, self.shape, words.bytes().slice(..bytes))
    }
}

/// `tensor` cut along `axis` into parts of `rows` rows each. Along the outermost axis the parts
/// share its bytes; elsewhere they are copied.
///
/// # Errors
/// [`TensorError::Length`] where the rows do not add up to the size of the axis.
pub(crate) fn split(tensor: &Tensor, axis: usize, rows: &[usize]) -> Result<Vec<Tensor>, TensorError> {
    let shape = tensor.shape();
    let all = shape.get(axis).copied().unwrap_or_default();
    if axis >= shape.len() || rows.iter().sum::<usize>() != all {
        let mut expected = shape.to_vec();
        if let Some(size) = expected.get_mut(axis) {
            *size = rows.iter().sum();
        }
        return Err(TensorError::Length {
            dtype: tensor.dtype(),
            expected: Tensor::byte_len(tensor.dtype(), &expected).unwrap_or_default(),
            shape: expected,
            got: tensor.bytes().len(),
        });
    }
    let Strides { outer, row } = strides(tensor.dtype(), shape, axis);
    let mut start = 0;
    let mut parts = Vec::with_capacity(rows.len());
    for &rows in rows {
        let mut shape = shape.to_vec();
        shape[axis] = rows;
        let data = if outer == 1 {
            tensor.bytes().slice(start * row..(start + rows) * row)
        } else {
            let blocks = (0..outer).flat_map(|block| {
                let from = (block * all + start) * row;
                tensor.bytes()[from..from + rows * row].iter().copied()
            });
            Bytes::from(blocks.collect::<Vec<u8>>())
        };
        parts.push(Tensor::new(tensor.dtype(), shape, data)?);
        start += rows;
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn join(parts: &[Tensor], axis: usize) -> Tensor {
        let rows: usize = parts.iter().map(|part| part.shape()[axis]).sum();
        let mut joiner = Joiner::new(parts[0].dtype(), parts[0].shape(), axis, rows).unwrap();
        for part in parts {
            joiner
                .add(part.shape()[axis], |out| {
                    out.copy_from_slice(part.bytes());
                    Ok::<(), Infallible>(())
                })
                .unwrap();
        }
        joiner.finish().unwrap()
    }

    #[test]
    fn joining_and_splitting_are_inverse_along_every_axis() {
        for axis in 0..3 {
            let part = |rows: usize, first: f32| {
                let mut shape = vec![2, 3, 4];
                shape[axis] = rows;
                let count: usize = shape.iter().product();
                let elements: Vec<f32> = (0..count).map(|index| first + index as f32).collect();
                Tensor::from_vec(shape, elements).unwrap()
            };
            let parts = [part(1, 0.0), part(3, 100.0), part(2, 200.0)];
            let joined = join(&parts, axis);
            assert_eq!(joined.shape()[axis], 6);
            assert_eq!(split(&joined, axis, &[1, 3, 2]).unwrap(), parts, "axis {axis}");
        }
    }

    #[test]
    fn joined_rows_stand_where_the_axis_says() {
        let a = Tensor::from_vec(vec![2, 1], vec![1u8, 2]).unwrap();
        let b = Tensor::from_vec(vec![2, 1], vec![3u8, 4]).unwrap();
        assert_eq!(join(&[a, b], 1).as_slice::<u8>().unwrap(), [1, 3, 2, 4]);
    }

    #[test]
    fn rows_that_do_not_add_up_are_an_error() {
        let tensor = Tensor::zeros(DType::F32, vec![3, 2]).unwrap();
        assert!(split(&tensor, 0, &[1, 1]).is_err());
        assert!(split(&tensor, 7, &[3]).is_err());
    }
}
