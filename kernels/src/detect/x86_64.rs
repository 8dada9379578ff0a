//! Detection on x86-64.

pub(super) fn avx2_f16c() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c")
}

pub(super) fn avx512() -> bool {
    avx2_f16c()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

pub(super) const fn neon() -> bool {
    false
}
