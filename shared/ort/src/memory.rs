//! Memory that ONNX Runtime has freed and the allocator still holds.

/// Gives freed memory back to the operating system. To lay weights out anew ONNX Runtime reads
/// them to the heap first; glibc keeps what is freed there for later, some 1.5 times the weights
/// of a small convolutional net. Other allocators give it back by themselves.
pub fn release_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[allow(
        unsafe_code,
        reason = "a call into the C library; the contract is stated here"
    )]
    // SAFETY: `malloc_trim` takes any number, touches free memory only and may be called from any
    // thread at any time (malloc_trim(3): MT-safe).
    unsafe {
        libc::malloc_trim(0);
    }
}
