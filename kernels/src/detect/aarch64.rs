//! Detection on aarch64.

pub(super) const fn avx2_f16c() -> bool {
    false
}

pub(super) const fn avx512() -> bool {
    false
}

pub(super) fn neon() -> bool {
    std::arch::is_aarch64_feature_detected!("neon")
}
