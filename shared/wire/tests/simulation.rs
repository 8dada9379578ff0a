//! A client and a service in virtual time, driven by random scripts: no request is lost silently,
//! none is answered twice, and nothing is held at the end.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking, and its numbers are small"
)]

#[path = "simulation/world.rs"]
mod world;

use proptest::collection::vec;
use proptest::prelude::*;
use world::{TestOp, World};

fn op() -> impl Strategy<Value = TestOp> {
    prop_oneof![
        2 => any::<bool>().prop_map(TestOp::Open),
        6 => (0u8..4, any::<bool>()).prop_map(|(size, known)| TestOp::Send { size, known }),
        8 => (any::<u8>(), 1u16..400).prop_map(|(pick, bytes)| TestOp::Deliver { pick, bytes }),
        6 => any::<u8>().prop_map(TestOp::Answer),
        2 => any::<u8>().prop_map(TestOp::Fail),
        2 => any::<u8>().prop_map(TestOp::Cancel),
        1 => any::<u8>().prop_map(TestOp::Resend),
        1 => any::<u8>().prop_map(TestOp::Damage),
        3 => (1u16..4000).prop_map(TestOp::Advance),
        1 => Just(TestOp::Drain),
        1 => Just(TestOp::Close),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn every_request_ends_exactly_once(script in vec(op(), 0..80)) {
        World::run(&script);
    }
}

#[test]
fn regression_a_drain_waits_for_what_it_accepted() {
    // With one stream, picks 0 to 3 are: control up, control down, request, answer.
    let deliver = |pick| TestOp::Deliver { pick, bytes: 399 };
    let send = TestOp::Send {
        size: 1,
        known: true,
    };
    let mut script = vec![TestOp::Open(true), deliver(0), deliver(1), send.clone()];
    script.extend([deliver(2), deliver(2), TestOp::Drain, deliver(1)]);
    // Refused on the client's own side, since it has heard of the drain.
    script.extend([send, TestOp::Answer(0)]);
    let counts = World::run(&script);
    assert_eq!((counts.started, counts.answered), (1, 1));
}
