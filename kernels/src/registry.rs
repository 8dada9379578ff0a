//! How a kernel is declared: once, with its reference, variants, frame and tolerance.
//!
//! ```text
//! kernel! {
//!     /// What it does, its limits, its promise.
//!     pub fn f32_to_f16(src: &[f32], dst: &mut [[u8; 2]]);
//!     require: assert_eq!(src.len(), dst.len(), "f32_to_f16: lengths differ");
//!     reference: reference::f32_to_f16;
//!     variants: {                                   // best first
//!         Avx512 => crate::x86_64::avx512::f32_to_f16,
//!         Neon => crate::aarch64::f32_to_f16,
//!     };
//!     tolerance: Tolerance::BitExact;
//!     frame: frames::Map::<f32, [u8; 2]>::new();
//! }
//! ```
//!
//! A variant is a function with `#[target_feature]` for no more than the features that its token
//! proves (see [`crate::isa`]). A variant of another architecture is left out by the macro, so that
//! declarations need no `cfg`.

/// How far a variant may lie from the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// The same bits, NaN payloads included.
    BitExact,
    /// f32 results at most this many representable numbers apart; NaN for NaN.
    Ulps(u32),
}

macro_rules! kernel {
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident($($arg:ident: $ty:ty),+ $(,)?) $(-> $ret:ty)?;
        require: $require:expr;
        reference: $reference:path;
        variants: { $($isa:ident => $variant:path),+ $(,)? };
        tolerance: $tolerance:expr;
        frame: $frame:expr;
    ) => {
        $(#[$meta])*
        $vis fn $name($($arg: $ty),+) $(-> $ret)? {
            static BACKEND: std::sync::OnceLock<$crate::isa::Backend> = std::sync::OnceLock::new();
            $require;
            let best = || $crate::isa::Backend::first_of(&[$($crate::isa::Isa::$isa),+]);
            $name::on(*BACKEND.get_or_init(best), $($arg),+)
        }

        mod $name {
            #[allow(
                unused_imports,
                clippy::wildcard_imports,
                reason = "types and paths of the declaration are those of its file"
            )]
            use super::*;

            #[inline]
            #[allow(
                unused_variables,
                reason = "no variant reads the backend where none is of this architecture"
            )]
            pub(super) fn on(
                backend: $crate::isa::Backend,
                $($arg: $ty),+
            ) $(-> $ret)? {
                kernel!(@dispatch backend, ($($arg),+), $($isa => $variant),+);
                // Also where a backend of another kernel is handed in.
                $reference($($arg),+)
            }

            #[test]
            fn every_variant_matches_the_reference() {
                let frame = $frame;
                let reference = frame.run(&|$($arg: $ty),+| $reference($($arg),+));
                let variants = [$($crate::isa::Isa::$isa),+].map(|isa| {
                    let backend = $crate::isa::Backend::of(isa);
                    let outputs = backend
                        .map(|backend| frame.run(&|$($arg: $ty),+| on(backend, $($arg),+)));
                    (isa, outputs)
                });
                $crate::harness::check(
                    stringify!($name),
                    &reference,
                    &variants,
                    $tolerance,
                    &|at| frame.describe(at),
                );
            }
        }
    };

    (@dispatch $backend:ident, $args:tt, $($isa:ident => $variant:path),+) => {
        $(kernel!(@$isa $backend, $args, $variant);)+
    };
    (@Avx2F16c $backend:ident, $args:tt, $variant:path) => {
        #[cfg(target_arch = "x86_64")]
        kernel!(@call Avx2F16c, $backend, $args, $variant);
    };
    (@Avx512 $backend:ident, $args:tt, $variant:path) => {
        #[cfg(target_arch = "x86_64")]
        kernel!(@call Avx512, $backend, $args, $variant);
    };
    (@Neon $backend:ident, $args:tt, $variant:path) => {
        #[cfg(target_arch = "aarch64")]
        kernel!(@call Neon, $backend, $args, $variant);
    };
    (@call $isa:ident, $backend:ident, ($($arg:ident),+), $variant:path) => {
        if let $crate::isa::Backend::$isa(_proof) = $backend {
            #[allow(
                unused_unsafe,
                reason = "the call is safe where the whole build enables the features"
            )]
            // SAFETY: the token exists only where this machine has the features that variants of
            // this instruction set are compiled for.
            return unsafe { $variant($($arg),+) };
        }
    };
}

pub(crate) use kernel;
