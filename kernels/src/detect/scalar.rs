//! Targets without a variant of their own.

pub(super) const fn avx2_f16c() -> bool {
    false
}

pub(super) const fn avx512() -> bool {
    false
}

pub(super) const fn neon() -> bool {
    false
}
