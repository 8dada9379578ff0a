//! One connection after its welcome: contracts, load, drain, and which requests are in flight.

mod client;
mod server;

pub use client::{ClientEvent, ClientSession, StartError};
pub use server::{Refusal, ServerEvent, ServerSession};

use crate::ErrorCode;

/// How a request's stream ended, seen from one side. Each ends in exactly one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Terminal {
    /// The outputs went out, or came in, complete.
    Answered,
    /// A typed error went out, or came in.
    Failed(ErrorCode),
    /// The client gave up; its code.
    Cancelled(ErrorCode),
    /// The connection ended first.
    Lost,
}

/// How many requests ended in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounts {
    /// Begun, whether ended or not.
    pub started: u64,
    /// [`Terminal::Answered`].
    pub answered: u64,
    /// [`Terminal::Failed`].
    pub failed: u64,
    /// [`Terminal::Cancelled`].
    pub cancelled: u64,
    /// [`Terminal::Lost`].
    pub lost: u64,
}

impl SessionCounts {
    /// Requests that ended.
    pub fn ended(&self) -> u64 {
        self.answered + self.failed + self.cancelled + self.lost
    }

    fn count(&mut self, terminal: Terminal) {
        match terminal {
            Terminal::Answered => self.answered += 1,
            Terminal::Failed(_) => self.failed += 1,
            Terminal::Cancelled(_) => self.cancelled += 1,
            Terminal::Lost => self.lost += 1,
        }
    }
}
