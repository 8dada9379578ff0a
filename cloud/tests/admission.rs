//! The admission gate, in virtual time.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proptest::prelude::*;
use seamline_cloud::admission::{Admission, AdmissionLimits, ConnectionId, Permit, ShedReason};

const A: ConnectionId = ConnectionId(1);
const B: ConnectionId = ConnectionId(2);
const LIMITS: AdmissionLimits = AdmissionLimits {
    max_in_flight: 3,
    max_in_flight_per_connection: 2,
    max_bytes: 100,
    max_bytes_per_connection: 100,
};

fn gate() -> (Admission, Arc<Mutex<Instant>>) {
    let now = Arc::new(Mutex::new(Instant::now()));
    let clock = Arc::clone(&now);
    (Admission::with_clock(LIMITS, move || *clock.lock()), now)
}

fn refused(gate: &Admission, connection: ConnectionId, bytes: u64) -> ShedReason {
    gate.try_admit(connection, bytes)
        .expect_err("admitted")
        .reason
}

#[test]
fn one_connection_does_not_hold_all_bytes() {
    let limits = AdmissionLimits {
        max_bytes_per_connection: 60,
        ..LIMITS
    };
    let gate = Admission::new(limits);
    let mut first = gate.try_admit(A, 40).unwrap();
    let limit = 60;
    assert_eq!(
        refused(&gate, A, 21),
        ShedReason::BytesOnConnection { bytes: 21, limit }
    );
    assert_eq!(
        refused(&gate, B, 61),
        ShedReason::TooLarge { bytes: 61, limit }
    );
    let other = gate.try_admit(B, 60).unwrap();
    assert_eq!(
        first.resize(41).unwrap_err().reason,
        ShedReason::Bytes {
            bytes: 1,
            limit: 100
        }
    );
    drop(other);
    first.resize(60).unwrap();
    assert_eq!(
        refused(&gate, A, 1),
        ShedReason::BytesOnConnection { bytes: 1, limit }
    );
    drop(first);
    gate.try_admit(A, 60).unwrap();
}

#[test]
fn each_limit_refuses_and_a_dropped_permit_makes_room() {
    let (gate, _) = gate();
    let first = gate.try_admit(A, 10).unwrap();
    let _second = gate.try_admit(A, 10).unwrap();
    assert_eq!(
        refused(&gate, A, 10),
        ShedReason::InFlightOnConnection { limit: 2 }
    );
    assert_eq!(
        refused(&gate, B, 81),
        ShedReason::Bytes {
            bytes: 81,
            limit: 100
        }
    );
    assert_eq!(
        refused(&gate, B, 101),
        ShedReason::TooLarge {
            bytes: 101,
            limit: 100
        }
    );
    assert_eq!(
        refused(&gate, B, u64::MAX),
        ShedReason::TooLarge {
            bytes: u64::MAX,
            limit: 100
        }
    );
    let _third = gate.try_admit(B, 80).unwrap();
    assert_eq!(refused(&gate, B, 0), ShedReason::InFlight { limit: 3 });
    assert_eq!(
        (gate.in_flight(), gate.in_flight_on(A), gate.bytes_held()),
        (3, 2, 100)
    );
    drop(first);
    assert_eq!(
        (gate.in_flight(), gate.in_flight_on(A), gate.bytes_held()),
        (2, 1, 90)
    );
    gate.try_admit(A, 10).unwrap();
}

#[test]
fn a_permit_can_change_its_bytes_within_the_limit() {
    let (gate, _) = gate();
    let mut first = gate.try_admit(A, 10).unwrap();
    let _second = gate.try_admit(B, 30).unwrap();
    first.resize(70).unwrap();
    assert_eq!((first.bytes(), gate.bytes_held()), (70, 100));
    let shed = first.resize(71).unwrap_err();
    assert_eq!(
        shed.reason,
        ShedReason::Bytes {
            bytes: 1,
            limit: 100
        }
    );
    assert_eq!(
        first.resize(101).unwrap_err().retry_after,
        None,
        "it never fits"
    );
    assert_eq!((first.bytes(), gate.bytes_held()), (70, 100), "as before");
    gate.start_drain();
    first.resize(5).unwrap();
    drop(first);
    assert_eq!(gate.bytes_held(), 30);
}

#[test]
fn retry_after_follows_how_fast_requests_are_answered() {
    let (gate, now) = gate();
    let retry_after = |gate: &Admission| {
        let held: Vec<Permit> = (0..3)
            .map(|n| gate.try_admit(ConnectionId(n), 0).unwrap())
            .collect();
        let shed = gate.try_admit(A, 0).unwrap_err();
        assert_eq!(shed.reason, ShedReason::InFlight { limit: 3 });
        drop(held);
        shed.retry_after.unwrap()
    };
    let unknown = retry_after(&gate);
    assert!(unknown > Duration::ZERO);
    for _ in 0..500 {
        *now.lock() += Duration::from_millis(100);
        drop(gate.try_admit(A, 0).unwrap());
    }
    // Three in flight at ten a second.
    let told = retry_after(&gate);
    let off = told.as_secs_f64() - 0.3;
    assert!(off.abs() < 0.03, "told {told:?}");
    assert_eq!(gate.try_admit(A, 101).unwrap_err().retry_after, None);
}

#[tokio::test]
async fn a_drain_refuses_new_requests_and_ends_with_the_last_permit() {
    let (gate, _) = gate();
    let first = gate.try_admit(A, 10).unwrap();
    let second = gate.try_admit(B, 10).unwrap();
    let mut drained = Box::pin({
        let gate = gate.clone();
        async move { gate.drained().await }
    });
    let pending = async |drained: &mut std::pin::Pin<Box<_>>| {
        tokio::select! { biased; () = drained => false, () = std::future::ready(()) => true }
    };
    assert!(pending(&mut drained).await);
    gate.start_drain();
    assert!(gate.is_draining());
    let shed = gate.try_admit(A, 1).unwrap_err();
    assert_eq!(
        (shed.reason, shed.retry_after),
        (ShedReason::Draining, None)
    );
    drop(first);
    assert!(pending(&mut drained).await);
    // From another thread, as permits are dropped by executors.
    std::thread::spawn(move || drop(second)).join().unwrap();
    drained.await;
    gate.drained().await;
}

proptest! {
    /// Whatever is admitted, resized and dropped in whatever order, the limits hold and the gate
    /// counts what is really held.
    #[test]
    fn the_books_balance(
        script in prop::collection::vec((0u8..4, 0u64..4, 0u64..120, 0usize..8), 1..200)
    ) {
        let (gate, _) = gate();
        let mut held: Vec<Permit> = Vec::new();
        for (op, connection, bytes, which) in script {
            match op {
                0 | 1 => held.extend(gate.try_admit(ConnectionId(connection), bytes)),
                2 if which < held.len() => drop(held.swap_remove(which)),
                3 if which < held.len() => {
                    let _refused = held[which].resize(bytes);
                }
                _ => {}
            }
            let sum: u64 = held.iter().map(Permit::bytes).sum();
            prop_assert_eq!(gate.bytes_held(), sum);
            prop_assert_eq!(gate.in_flight() as usize, held.len());
            prop_assert!(sum <= LIMITS.max_bytes && gate.in_flight() <= LIMITS.max_in_flight);
            for connection in (0..4).map(ConnectionId) {
                let count = held.iter().filter(|p| p.connection() == connection).count();
                prop_assert_eq!(gate.in_flight_on(connection) as usize, count);
                prop_assert!(count <= LIMITS.max_in_flight_per_connection as usize);
            }
        }
    }
}
