//! Writing `.npy` files (NumPy's format, version 1.0).

use seamline_plan::{DType, Tensor};

/// The content of a `.npy` file of `tensor`. `bf16`, which NumPy does not have, is written as the
/// `f32` of the same value.
pub fn encode(tensor: &Tensor) -> Vec<u8> {
    let (descr, data) = match tensor.dtype() {
        DType::F32 => ("<f4", None),
        DType::F64 => ("<f8", None),
        DType::F16 => ("<f2", None),
        DType::BF16 => ("<f4", Some(widened(tensor.bytes()))),
        DType::I8 => ("|i1", None),
        DType::I16 => ("<i2", None),
        DType::I32 => ("<i4", None),
        DType::I64 => ("<i8", None),
        DType::U8 => ("|u1", None),
        DType::U16 => ("<u2", None),
        DType::U32 => ("<u4", None),
        DType::U64 => ("<u8", None),
        DType::Bool => ("|b1", None),
    };
    // A tuple of Python: one element has a comma behind it.
    let shape: String = tensor
        .shape()
        .iter()
        .map(|dim| format!("{dim}, "))
        .collect();
    let mut header =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    // Magic, version and length take 10 bytes; all together a multiple of 64.
    let padding = 64 - (10 + header.len() + 1) % 64;
    header.extend(std::iter::repeat_n(' ', padding % 64));
    header.push('\n');
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    // A rank whose header passes 64 KiB cannot be: tensors have some dimensions.
    let len = u16::try_from(header.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(data.as_deref().unwrap_or(tensor.bytes()));
    out
}

/// The bytes of `bf16` elements as those of `f32`: the upper half of it.
fn widened(bytes: &[u8]) -> Vec<u8> {
    let (elements, _) = bytes.as_chunks::<2>();
    elements
        .iter()
        .flat_map(|&[low, high]| [0, 0, low, high])
        .collect()
}

#[cfg(test)]
mod tests {
    use seamline_plan::{TensorSpec, read_input};

    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        let tensors = [
            Tensor::from_vec(vec![2, 3], vec![1.5f32; 6]).unwrap(),
            Tensor::from_vec(vec![4], vec![-1i64, 2, 3, 4]).unwrap(),
            Tensor::from_vec(vec![], vec![7u8]).unwrap(),
            Tensor::from_bools(vec![2], &[true, false]).unwrap(),
            Tensor::from_vec(vec![0, 2], Vec::<i32>::new()).unwrap(),
        ];
        for tensor in tensors {
            let bytes = encode(&tensor);
            assert_eq!((bytes.len() - tensor.bytes().len()) % 64, 0);
            std::fs::write(&path, bytes).unwrap();
            let spec: TensorSpec = tensor.spec("x");
            let read = read_input(&path, &spec).unwrap();
            assert_eq!(
                (read.dtype(), read.shape()),
                (tensor.dtype(), tensor.shape())
            );
            assert_eq!(read.bytes(), tensor.bytes());
        }
    }
}
