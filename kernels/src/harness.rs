//! Compares the variants of a kernel with its reference, for the tests that `kernel!` stamps.

use std::io::Write;

use crate::isa::Isa;
use crate::registry::Tolerance;

/// One value that a kernel gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Observed {
    Bits(u64),
    Signed(i64),
    F32(u32),
}

impl std::fmt::Display for Observed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Observed::Bits(bits) => write!(f, "{bits} ({bits:#x})"),
            Observed::Signed(value) => write!(f, "{value}"),
            Observed::F32(bits) => write!(f, "{:e} ({bits:#010x})", f32::from_bits(bits)),
        }
    }
}

/// How far two values lie apart: 0 the same, `u64::MAX` not comparable.
fn distance(expected: Observed, got: Observed, tolerance: Tolerance) -> u64 {
    match (expected, got, tolerance) {
        _ if expected == got => 0,
        (Observed::F32(a), Observed::F32(b), Tolerance::Ulps(_)) => {
            match (f32::from_bits(a).is_nan(), f32::from_bits(b).is_nan()) {
                (true, true) => 0,
                (false, false) => ordinal(a).abs_diff(ordinal(b)),
                _ => u64::MAX,
            }
        }
        (Observed::F32(a), Observed::F32(b), Tolerance::BitExact) => {
            ordinal(a).abs_diff(ordinal(b)).max(1)
        }
        (Observed::Signed(a), Observed::Signed(b), _) => a.abs_diff(b),
        (Observed::Bits(a), Observed::Bits(b), _) => a.abs_diff(b),
        _ => u64::MAX,
    }
}

/// The place of an f32 among all of them; both zeros have the same.
fn ordinal(bits: u32) -> i64 {
    let magnitude = i64::from(bits & 0x7fff_ffff);
    if bits >> 31 == 0 {
        magnitude
    } else {
        -magnitude
    }
}

/// Panics where a variant's outputs lie further from the reference's than `tolerance`, naming the
/// worst input and both values. Prints which variants ran and which this machine lacks.
pub(crate) fn check(
    kernel: &str,
    reference: &[Observed],
    variants: &[(Isa, Option<Vec<Observed>>)],
    tolerance: Tolerance,
    describe: &dyn Fn(usize) -> String,
) {
    assert!(!reference.is_empty(), "{kernel}: its frame has no cases");
    let mut covered = Vec::new();
    let mut skipped = Vec::new();
    for (isa, outputs) in variants {
        let Some(outputs) = outputs else {
            skipped.push(isa.name());
            continue;
        };
        if let Some(failure) = compare(reference, outputs, tolerance) {
            panic!(
                "{kernel} on {isa}: {failure}\n  at {}",
                describe(failure.at)
            );
        }
        covered.push(isa.name());
    }
    report(kernel, reference.len(), &covered, &skipped);
}

struct Failure {
    at: usize,
    wrong: usize,
    of: usize,
    expected: Observed,
    got: Observed,
    tolerance: Tolerance,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} of {} values pass the tolerance {:?}; the worst: reference {}, variant {}",
            self.wrong, self.of, self.tolerance, self.expected, self.got
        )
    }
}

fn compare(reference: &[Observed], outputs: &[Observed], tolerance: Tolerance) -> Option<Failure> {
    assert_eq!(reference.len(), outputs.len(), "the frame gave other cases");
    let limit = match tolerance {
        Tolerance::BitExact => 0,
        Tolerance::Ulps(ulps) => u64::from(ulps),
    };
    let pairs = reference.iter().zip(outputs);
    let distances = pairs.map(|(&expected, &got)| distance(expected, got, tolerance));
    let (worst, at) = distances
        .clone()
        .enumerate()
        .map(|(at, distance)| (distance, at))
        .max_by_key(|&(distance, _)| distance)?;
    (worst > limit).then(|| Failure {
        at,
        wrong: distances.filter(|&distance| distance > limit).count(),
        of: reference.len(),
        expected: reference[at],
        got: outputs[at],
        tolerance,
    })
}

/// Straight to stderr: a coverage line that the test runner swallows is no report.
fn report(kernel: &str, values: usize, covered: &[&str], skipped: &[&str]) {
    let list = |names: &[&str]| match names {
        [] => "none".to_owned(),
        names => names.join(", "),
    };
    let line = format!(
        "kernel {kernel}: {values} values; variants covered: {}; skipped, not on this machine: {}\n",
        list(covered),
        list(skipped)
    );
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s(values: &[f32]) -> Vec<Observed> {
        values.iter().map(|x| Observed::F32(x.to_bits())).collect()
    }

    #[test]
    fn a_failure_names_the_worst_input_and_both_values() {
        let reference = f32s(&[1.0, 2.0, 3.0]);
        let wrong = f32s(&[1.0f32.next_up(), 2.5, 3.0]);
        let panic = std::panic::catch_unwind(|| {
            check(
                "twice",
                &reference,
                &[(Isa::Scalar, Some(wrong))],
                Tolerance::BitExact,
                &|at| format!("input {at}"),
            );
        })
        .unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.starts_with("twice on scalar: 2 of 3 values"), "{text}");
        assert!(text.contains("reference 2e0"), "{text}");
        assert!(text.contains("variant 2.5e0"), "{text}");
        assert!(text.ends_with("at input 1"), "{text}");
    }

    #[test]
    fn ulps_are_counted_across_zero_and_nan_equals_nan() {
        let reference = f32s(&[1.0, 0.0, f32::NAN]);
        let near = f32s(&[1.0f32.next_up(), -f32::from_bits(1), -f32::NAN]);
        assert!(compare(&reference, &near, Tolerance::Ulps(1)).is_none());
        assert!(compare(&reference, &near, Tolerance::BitExact).is_some());
        assert!(compare(&f32s(&[f32::NAN]), &f32s(&[1.0]), Tolerance::Ulps(9)).is_some());
        assert!(compare(&f32s(&[0.0]), &f32s(&[-0.0]), Tolerance::BitExact).is_some());
    }
}
