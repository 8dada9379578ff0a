//! Which requests shared the link upwards.

use std::collections::VecDeque;
use std::time::Instant;

/// Finished uploads that are remembered: a request overlaps with the last few at most.
const REMEMBERED: usize = 16;

/// Requests on their way up, so that one that had to share the link is not taken for a slow link.
#[derive(Clone, Debug, Default)]
pub(crate) struct Uploads {
    next: u64,
    open: Vec<(u64, Instant, u64)>,
    done: VecDeque<(Instant, Instant, u64)>,
}

impl Uploads {
    /// A request of so many payload bytes begins to be sent; gives its number.
    pub(crate) fn begin(&mut self, now: Instant, bytes: u64) -> u64 {
        self.next += 1;
        self.open.push((self.next, now, bytes));
        self.next
    }

    /// A request will not be answered.
    pub(crate) fn abandon(&mut self, number: u64) {
        self.open.retain(|&(open, ..)| open != number);
    }

    /// A request was sent by `to`, as its answer tells. Gives the bytes of others that went up
    /// between its beginning and then: of finished ones in proportion, of open ones as many as it
    /// got itself.
    pub(crate) fn end(&mut self, number: u64, to: Instant) -> u64 {
        let Some(at) = self.open.iter().position(|&(open, ..)| open == number) else {
            return 0;
        };
        let (_, from, bytes) = self.open.swap_remove(at);
        let length = to.saturating_duration_since(from).as_secs_f64().max(1e-9);
        let overlap = |other_from: Instant, other_to: Instant| {
            let to = to.min(other_to);
            let from = from.max(other_from);
            to.saturating_duration_since(from).as_secs_f64()
        };
        let done = self.done.iter().map(|&(other_from, other_to, bytes)| {
            let whole = other_to.saturating_duration_since(other_from);
            let share = overlap(other_from, other_to) / whole.as_secs_f64().max(1e-9);
            bytes as f64 * share.min(1.0)
        });
        let open = self.open.iter().map(|&(_, other_from, other)| {
            let fair = bytes as f64 * overlap(other_from, to) / length;
            fair.min(other as f64)
        });
        let others: f64 = done.chain(open).sum();
        self.done.push_back((from, to, bytes));
        if self.done.len() > REMEMBERED {
            self.done.pop_front();
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a sum of shares of byte counts; a float saturates where it is cast"
        )]
        {
            others as u64
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_what_overlaps_is_shared() {
        let zero = Instant::now();
        let at = |ms| zero + Duration::from_millis(ms);
        let mut uploads = Uploads::default();
        let first = uploads.begin(at(0), 1000);
        let second = uploads.begin(at(50), 1000);
        // The second is still on its way: over half of the time both had the same.
        assert_eq!(uploads.end(first, at(100)), 500);
        // Half of the first fell into the second's time.
        assert_eq!(uploads.end(second, at(150)), 500);
        let third = uploads.begin(at(200), 1000);
        let gone = uploads.begin(at(200), 1000);
        uploads.abandon(gone);
        assert_eq!(uploads.end(third, at(300)), 0);
        assert_eq!(uploads.end(third, at(300)), 0);
    }
}
