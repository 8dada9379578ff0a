//! Instruction sets, and the tokens that prove them.

#[cfg_attr(target_arch = "x86_64", path = "detect/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "detect/aarch64.rs")]
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    path = "detect/scalar.rs"
)]
mod detect;

/// The name of an instruction set that a kernel can have a variant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Plain Rust: the reference.
    Scalar,
    /// x86-64 with AVX2 and F16C (Haswell and later, Zen and later).
    Avx2F16c,
    /// x86-64 with AVX-512 F, BW, DQ and VL (Skylake-SP and later, Zen 4 and later), AVX2 and F16C.
    Avx512,
    /// aarch64 with Advanced SIMD.
    Neon,
}

impl Isa {
    /// Every instruction set, in the order of the enum.
    pub const ALL: [Isa; 4] = [Isa::Scalar, Isa::Avx2F16c, Isa::Avx512, Isa::Neon];

    /// The name that users see: `scalar`, `avx2+f16c`, `avx512`, `neon`.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2F16c => "avx2+f16c",
            Isa::Avx512 => "avx512",
            Isa::Neon => "neon",
        }
    }

    /// Whether this machine has it.
    pub fn is_available(self) -> bool {
        Backend::of(self).is_some()
    }
}

impl std::fmt::Display for Isa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

macro_rules! tokens {
    ($($(#[$doc:meta])* $token:ident => $detect:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $token(());

        impl $token {
            /// The token, where this machine has the instructions.
            pub fn new() -> Option<Self> {
                detect::$detect().then_some($token(()))
            }
        }
    )*};
}

tokens! {
    /// Proof that this machine has AVX2 and F16C.
    Avx2F16c => avx2_f16c;
    /// Proof that this machine has AVX-512 F, BW, DQ and VL, AVX2 and F16C.
    Avx512 => avx512;
    /// Proof that this machine has Advanced SIMD (NEON).
    Neon => neon;
}

/// What a kernel runs on: the reference, or a variant with the proof of its instructions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Backend {
    Scalar,
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(dead_code, reason = "the token is read on x86-64")
    )]
    Avx2F16c(Avx2F16c),
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(dead_code, reason = "the token is read on x86-64")
    )]
    Avx512(Avx512),
    #[cfg_attr(
        not(target_arch = "aarch64"),
        allow(dead_code, reason = "the token is read on aarch64")
    )]
    Neon(Neon),
}

impl Backend {
    /// The backend of `isa`, where this machine has it.
    pub(crate) fn of(isa: Isa) -> Option<Backend> {
        match isa {
            Isa::Scalar => Some(Backend::Scalar),
            Isa::Avx2F16c => Avx2F16c::new().map(Backend::Avx2F16c),
            Isa::Avx512 => Avx512::new().map(Backend::Avx512),
            Isa::Neon => Neon::new().map(Backend::Neon),
        }
    }

    /// The first of `preferred` that this machine has, else the reference.
    pub(crate) fn first_of(preferred: &[Isa]) -> Backend {
        preferred
            .iter()
            .find_map(|&isa| Backend::of(isa))
            .unwrap_or(Backend::Scalar)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_scalar_is_always_there() {
        let mut names: Vec<_> = Isa::ALL.iter().map(|isa| isa.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Isa::ALL.len());
        assert!(Isa::Scalar.is_available());
    }
}
