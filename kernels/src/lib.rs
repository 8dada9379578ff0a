//! Slices in, slices out: the SIMD kernels of Seamline, each beside its scalar reference.
