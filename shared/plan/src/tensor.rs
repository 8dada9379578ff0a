//! A dense tensor in memory.

use bytes::Bytes;
use thiserror::Error;

use crate::{DType, Element, TensorSpec, element_count, format_shape};

/// A dense, contiguous, row-major tensor. Cloning shares the bytes.
#[derive(Clone, PartialEq)]
pub struct Tensor {
    dtype: DType,
    shape: Vec<usize>,
    data: Bytes,
}

/// A tensor that cannot be made, or viewed as asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TensorError {
    /// The bytes do not fill the shape.
    #[error("{dtype} {} takes {expected} bytes, got {got}", format_shape(shape))]
    Length {
        /// Element type.
        dtype: DType,
        /// Shape asked for.
        shape: Vec<usize>,
        /// Bytes that it takes.
        expected: usize,
        /// Bytes that came.
        got: usize,
    },
    /// The shape takes more bytes than an address can count.
    #[error(
        "{dtype} {} takes more bytes than this machine can address",
        format_shape(shape)
    )]
    Overflow {
        /// Element type.
        dtype: DType,
        /// Shape asked for.
        shape: Vec<usize>,
    },
    /// Viewed as another element type.
    #[error("tensor has dtype {got}, asked for {asked}")]
    DType {
        /// Asked for.
        asked: DType,
        /// The tensor's.
        got: DType,
    },
    /// The bytes lie at an address that the element type may not have.
    #[error("tensor bytes are not aligned for {dtype}; call `aligned` first")]
    Alignment {
        /// The tensor's element type.
        dtype: DType,
    },
}

impl Tensor {
    /// A tensor over `data`, which is little-endian and row-major.
    ///
    /// # Errors
    /// [`TensorError::Length`] or [`TensorError::Overflow`] where `data` does not fill `shape`.
    pub fn new(dtype: DType, shape: Vec<usize>, data: Bytes) -> Result<Tensor, TensorError> {
        let Some(expected) = Self::byte_len(dtype, &shape) else {
            return Err(TensorError::Overflow { dtype, shape });
        };
        if data.len() != expected {
            return Err(TensorError::Length {
                dtype,
                shape,
                expected,
                got: data.len(),
            });
        }
        Ok(Tensor { dtype, shape, data })
    }

    /// A tensor that takes over `elements` without a copy.
    ///
    /// # Errors
    /// As [`Tensor::new`].
    pub fn from_vec<T: Element>(
        shape: Vec<usize>,
        elements: Vec<T>,
    ) -> Result<Tensor, TensorError> {
        struct Owner<T>(Vec<T>);
        impl<T: Element> AsRef<[u8]> for Owner<T> {
            fn as_ref(&self) -> &[u8] {
                bytemuck::cast_slice(&self.0)
            }
        }
        Tensor::new(T::DTYPE, shape, Bytes::from_owner(Owner(elements)))
    }

    /// A boolean tensor.
    ///
    /// # Errors
    /// As [`Tensor::new`].
    pub fn from_bools(shape: Vec<usize>, elements: &[bool]) -> Result<Tensor, TensorError> {
        let bytes: Vec<u8> = elements.iter().map(|&element| u8::from(element)).collect();
        Tensor::new(DType::Bool, shape, Bytes::from(bytes))
    }

    /// A tensor of zeros.
    ///
    /// # Errors
    /// [`TensorError::Overflow`].
    pub fn zeros(dtype: DType, shape: Vec<usize>) -> Result<Tensor, TensorError> {
        let Some(len) = Self::byte_len(dtype, &shape) else {
            return Err(TensorError::Overflow { dtype, shape });
        };
        // u64 storage keeps the bytes aligned for every element type.
        let words = Tensor::from_vec(vec![len.div_ceil(8)], vec![0u64; len.div_ceil(8)])?;
        Tensor::new(dtype, shape, words.data.slice(..len))
    }

    /// Bytes that `dtype` and `shape` take, or `None` where they pass `usize`.
    pub fn byte_len(dtype: DType, shape: &[usize]) -> Option<usize> {
        element_count(shape)?.checked_mul(dtype.size())
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Dimensions, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.data.len() / self.dtype.size()
    }

    /// Whether the tensor has no elements.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// The elements' bytes, little-endian, row-major.
    pub fn bytes(&self) -> &Bytes {
        &self.data
    }

    /// The elements. A `bool` tensor is viewed as `u8`.
    ///
    /// # Errors
    /// [`TensorError::DType`] for another type, [`TensorError::Alignment`] for bytes that came
    /// unaligned from elsewhere (see [`Tensor::aligned`]).
    pub fn as_slice<T: Element>(&self) -> Result<&[T], TensorError> {
        let same = self.dtype == T::DTYPE || (self.dtype == DType::Bool && T::DTYPE == DType::U8);
        if !same {
            return Err(TensorError::DType {
                asked: T::DTYPE,
                got: self.dtype,
            });
        }
        bytemuck::try_cast_slice(&self.data)
            .map_err(|_| TensorError::Alignment { dtype: self.dtype })
    }

    /// The elements as an n-dimensional array view.
    ///
    /// # Errors
    /// As [`Tensor::as_slice`].
    pub fn view<T: Element>(&self) -> Result<ndarray::ArrayViewD<'_, T>, TensorError> {
        let elements = self.as_slice::<T>()?;
        ndarray::ArrayViewD::from_shape(self.shape.as_slice(), elements).map_err(|_| {
            TensorError::Overflow {
                dtype: self.dtype,
                shape: self.shape.clone(),
            }
        })
    }

    /// The same tensor, its bytes copied to an aligned place where they are not in one.
    #[must_use]
    pub fn aligned(self) -> Tensor {
        if (self.data.as_ptr() as usize).is_multiple_of(self.dtype.size()) {
            return self;
        }
        let mut words = vec![0u64; self.data.len().div_ceil(8)];
        bytemuck::cast_slice_mut(&mut words)[..self.data.len()].copy_from_slice(&self.data);
        struct Owner(Vec<u64>, usize);
        impl AsRef<[u8]> for Owner {
            fn as_ref(&self) -> &[u8] {
                &bytemuck::cast_slice(&self.0)[..self.1]
            }
        }
        let data = Bytes::from_owner(Owner(words, self.data.len()));
        Tensor { data, ..self }
    }

    /// The same elements in another shape.
    ///
    /// # Errors
    /// [`TensorError::Length`] where the number of elements differs.
    pub fn reshape(self, shape: Vec<usize>) -> Result<Tensor, TensorError> {
        Tensor::new(self.dtype, shape, self.data)
    }

    /// The spec that this tensor has, under `name`.
    pub fn spec(&self, name: &str) -> TensorSpec {
        TensorSpec {
            name: name.to_owned(),
            dtype: self.dtype,
            shape: self.shape.iter().map(|&dim| (dim as u64).into()).collect(),
        }
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tensor({} {})", self.dtype, format_shape(&self.shape))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_check_type_length_and_alignment() {
        let tensor = Tensor::from_vec(vec![2, 2], vec![1.0f32, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!(tensor.as_slice::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(tensor.view::<f32>().unwrap()[[1, 0]], 3.0);
        assert!(matches!(
            tensor.as_slice::<i32>(),
            Err(TensorError::DType { .. })
        ));
        assert!(matches!(
            Tensor::from_vec(vec![3], vec![1.0f32]),
            Err(TensorError::Length {
                expected: 12,
                got: 4,
                ..
            })
        ));

        let mut shifted = vec![0u8];
        shifted.extend_from_slice(tensor.bytes());
        let base = Bytes::from_owner(shifted);
        // One of the two offsets is not a multiple of four, wherever the allocation begins.
        let odd = usize::from((base.as_ptr() as usize).is_multiple_of(4));
        if odd == 1 {
            let tensor = Tensor::new(DType::F32, vec![4], base.slice(1..)).unwrap();
            assert!(matches!(
                tensor.as_slice::<f32>(),
                Err(TensorError::Alignment { .. })
            ));
            assert_eq!(
                tensor.aligned().as_slice::<f32>().unwrap(),
                [1.0, 2.0, 3.0, 4.0]
            );
        }
    }

    #[test]
    fn zeros_are_aligned_for_every_dtype() {
        let zeros = Tensor::zeros(DType::F64, vec![3]).unwrap();
        assert_eq!(zeros.as_slice::<f64>().unwrap(), [0.0; 3]);
        assert_eq!(Tensor::zeros(DType::U8, vec![5]).unwrap().len(), 5);
        assert!(Tensor::zeros(DType::F32, vec![usize::MAX, 4]).is_err());
    }
}
