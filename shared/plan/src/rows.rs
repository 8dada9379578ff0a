//! Tensors joined along an axis and split again: how requests become a batch and answers.

use bytes::Bytes;

use crate::{DType, Tensor, TensorError};

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
pub struct Joiner {
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
    /// [`TensorError::Overflow`], also where the shape has no such axis.
    pub fn new(
        dtype: DType,
        shape: &[usize],
        axis: usize,
        rows: usize,
    ) -> Result<Joiner, TensorError> {
        let mut shape = shape.to_vec();
        let size = shape.get_mut(axis).map(|size| *size = rows);
        let (Some(()), Some(bytes)) = (size, Tensor::byte_len(dtype, &shape)) else {
            return Err(TensorError::Overflow { dtype, shape });
        };
        // u64 storage keeps the elements aligned for every dtype.
        Ok(Joiner {
            dtype,
            shape,
            axis,
            data: vec![0; bytes.div_ceil(8)],
            filled: 0,
        })
    }

    /// Adds the next `rows` rows. Where the batch axis is the outermost, `fill` writes them in
    /// place; elsewhere it writes them to a buffer that is then interleaved.
    ///
    /// # Errors
    /// What `fill` returns; the batch is then unusable.
    pub fn add<E>(
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
    pub fn finish(self) -> Result<Tensor, TensorError> {
        let bytes = Tensor::byte_len(self.dtype, &self.shape).unwrap_or_default();
        let words = Tensor::from_vec(vec![self.data.len()], self.data)?;
        Tensor::new(self.dtype, self.shape, words.bytes().slice(..bytes))
    }
}

/// `parts` joined along `axis`.
///
/// # Errors
/// [`TensorError`] where their dtypes or shapes do not fit together.
pub fn concat_rows(parts: &[&Tensor], axis: usize) -> Result<Tensor, TensorError> {
    let (dtype, shape) = parts
        .first()
        .map_or((DType::F32, &[][..]), |t| (t.dtype(), t.shape()));
    let size = |part: &&Tensor| part.shape().get(axis).copied().unwrap_or_default();
    let mut joiner = Joiner::new(dtype, shape, axis, parts.iter().map(size).sum())?;
    for part in parts {
        if part.dtype() != dtype {
            return Err(TensorError::DType {
                asked: dtype,
                got: part.dtype(),
            });
        }
        joiner.add(size(part), |out| {
            if out.len() != part.bytes().len() {
                return Err(TensorError::Length {
                    dtype,
                    shape: part.shape().to_vec(),
                    expected: out.len(),
                    got: part.bytes().len(),
                });
            }
            out.copy_from_slice(part.bytes());
            Ok(())
        })?;
    }
    joiner.finish()
}

/// `tensor` cut along `axis` into parts of `rows` rows each. Along the outermost axis the parts
/// share its bytes; elsewhere they are copied.
///
/// # Errors
/// [`TensorError::Length`] where the rows do not add up to the size of the axis.
pub fn split_rows(
    tensor: &Tensor,
    axis: usize,
    rows: &[usize],
) -> Result<Vec<Tensor>, TensorError> {
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
    use super::*;

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
            let joined = concat_rows(&parts.each_ref(), axis).unwrap();
            assert_eq!(joined.shape()[axis], 6);
            assert_eq!(
                split_rows(&joined, axis, &[1, 3, 2]).unwrap(),
                parts,
                "axis {axis}"
            );
        }
    }

    #[test]
    fn joined_rows_stand_where_the_axis_says() {
        let a = Tensor::from_vec(vec![2, 1], vec![1u8, 2]).unwrap();
        let b = Tensor::from_vec(vec![2, 1], vec![3u8, 4]).unwrap();
        assert_eq!(
            concat_rows(&[&a, &b], 1).unwrap().as_slice::<u8>().unwrap(),
            [1, 3, 2, 4]
        );
    }

    #[test]
    fn parts_that_do_not_fit_are_an_error() {
        let a = Tensor::zeros(DType::F32, vec![1, 2]).unwrap();
        let b = Tensor::zeros(DType::F32, vec![1, 3]).unwrap();
        let c = Tensor::zeros(DType::I64, vec![1, 2]).unwrap();
        assert!(concat_rows(&[&a, &b], 0).is_err());
        assert!(concat_rows(&[&a, &c], 0).is_err());
        assert!(concat_rows(&[&a], 5).is_err());
        assert!(concat_rows(&[], 0).is_err());
    }

    #[test]
    fn rows_that_do_not_add_up_are_an_error() {
        let tensor = Tensor::zeros(DType::F32, vec![3, 2]).unwrap();
        assert!(split_rows(&tensor, 0, &[1, 1]).is_err());
        assert!(split_rows(&tensor, 7, &[3]).is_err());
    }
}
