//! State slots of recurrent nets: one a session, owned by the connection that began it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use seamline_wire::ErrorCode;

use crate::contract::Refusal;
use crate::tail::StateSlot;

/// One session's slot, shared by the table and the step that runs.
pub type SharedSlot = Arc<Mutex<Slot>>;

/// A session's place in its sequence of steps, and its state.
#[derive(Debug)]
pub struct Slot {
    contract: usize,
    cut: usize,
    next_step: u64,
    /// The recurrent state.
    pub state: StateSlot,
}

/// All sessions of the service.
#[derive(Debug)]
pub struct Sessions {
    table: Mutex<Table>,
    max_sessions: usize,
    max_per_connection: usize,
}

#[derive(Debug, Default)]
struct Table {
    /// By connection and the session's id, which is local to it.
    slots: HashMap<(u64, u64), SharedSlot>,
    /// Connections that are there, and how many sessions each has: a request that outlives its
    /// connection gets no slot, which nobody would free.
    connections: HashMap<u64, usize>,
}

/// A step's right to its session's state. Steps of one session come one after the other.
#[derive(Debug)]
pub struct Step {
    slot: SharedSlot,
    step: u64,
}

impl Sessions {
    /// A table of at most `max_sessions`, of one connection at most `max_per_connection`.
    pub fn new(max_sessions: usize, max_per_connection: usize) -> Sessions {
        Sessions {
            table: Mutex::default(),
            max_sessions,
            max_per_connection,
        }
    }

    /// Sessions that hold a slot.
    pub fn len(&self) -> usize {
        self.table.lock().slots.len()
    }

    /// Whether no session holds a slot.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slot for step `step` of `session` on `connection`; step 0 makes it, or begins it anew.
    ///
    /// # Errors
    /// [`Refusal`] where the step does not follow the last one that ran, the session began at
    /// another cut or contract, or there are too many sessions.
    pub fn step(
        &self,
        connection: u64,
        session: u64,
        step: u64,
        contract: usize,
        cut: usize,
    ) -> Result<Step, Refusal> {
        let mut table = self.table.lock();
        let Table { slots, connections } = &mut *table;
        let refuse = |message: String| Refusal {
            code: ErrorCode::UnknownSession,
            message,
        };
        let Some(sessions) = connections.get_mut(&connection) else {
            return Err(refuse("the connection of this session has ended".into()));
        };
        let key = (connection, session);
        if step == 0 {
            if !slots.contains_key(&key) {
                self.check_room(slots.len(), *sessions)?;
                *sessions += 1;
            }
            let slot = Slot {
                contract,
                cut,
                next_step: 0,
                state: StateSlot::default(),
            };
            let slot = Arc::new(Mutex::new(slot));
            slots.insert(key, Arc::clone(&slot));
            return Ok(Step { slot, step });
        }
        let slot = slots.get(&key).ok_or_else(|| {
            refuse(format!(
                "session {session} is not open on this connection; begin at step 0"
            ))
        })?;
        let Some(held) = slot.try_lock() else {
            return Err(refuse(format!(
                "a step of session {session} is still running"
            )));
        };
        if (held.contract, held.cut) != (contract, cut) {
            return Err(refuse(format!(
                "session {session} began at another cut; begin at step 0"
            )));
        }
        if held.next_step != step {
            return Err(refuse(format!(
                "step {step} of session {session} came; step {} is next",
                held.next_step
            )));
        }
        drop(held);
        Ok(Step {
            slot: Arc::clone(slot),
            step,
        })
    }

    fn check_room(&self, all: usize, of_connection: usize) -> Result<(), Refusal> {
        let overloaded = |message: String| Refusal {
            code: ErrorCode::Overloaded,
            message,
        };
        if of_connection >= self.max_per_connection {
            return Err(overloaded(format!(
                "{of_connection} sessions are open on this connection, which is the limit"
            )));
        }
        if all >= self.max_sessions {
            return Err(overloaded(format!(
                "{all} sessions are open, which is the limit"
            )));
        }
        Ok(())
    }

    /// Lets `connection` open sessions.
    pub fn begin_connection(&self, connection: u64) {
        self.table.lock().connections.insert(connection, 0);
    }

    /// Frees every session of `connection`; it can open no more.
    pub fn end_connection(&self, connection: u64) {
        let mut table = self.table.lock();
        table.connections.remove(&connection);
        table.slots.retain(|(owner, _), _| *owner != connection);
    }
}

impl Step {
    /// Runs `run` on the session's state. Where it succeeds, the next step may come.
    ///
    /// # Errors
    /// `None` where another step took this one's place meanwhile; else what `run` returned.
    pub fn run<T, E>(
        &self,
        run: impl FnOnce(&mut StateSlot) -> Result<T, E>,
    ) -> Option<Result<T, E>> {
        let mut slot = self.slot.lock();
        if slot.next_step != self.step {
            return None;
        }
        let result = run(&mut slot.state);
        if result.is_ok() {
            slot.next_step += 1;
        }
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions(max_sessions: usize) -> Sessions {
        let sessions = Sessions::new(max_sessions, 3);
        sessions.begin_connection(1);
        sessions.begin_connection(2);
        sessions
    }

    fn run(step: &Step) -> Option<Result<(), ()>> {
        step.run(|_| Ok(()))
    }

    #[test]
    fn steps_run_once_each_and_in_order() {
        let sessions = sessions(4);
        let first = sessions.step(1, 7, 0, 0, 0).unwrap();
        let twin = sessions.step(1, 8, 0, 0, 0).unwrap();
        assert_eq!(run(&first), Some(Ok(())));
        assert_eq!(run(&first), None, "the same step never runs twice");
        assert_eq!(run(&twin), Some(Ok(())), "sessions do not share steps");
        assert!(sessions.step(1, 7, 0, 0, 0).is_ok(), "step 0 begins anew");
        assert_eq!(
            sessions.step(1, 7, 2, 0, 0).unwrap_err().code,
            ErrorCode::UnknownSession
        );
        assert_eq!(
            sessions.step(2, 8, 1, 0, 0).unwrap_err().code,
            ErrorCode::UnknownSession
        );
        assert_eq!(
            sessions.step(1, 8, 1, 0, 3).unwrap_err().code,
            ErrorCode::UnknownSession
        );
        assert!(sessions.step(1, 8, 1, 0, 0).is_ok());
    }

    #[test]
    fn a_failed_step_can_be_tried_again() {
        let sessions = sessions(4);
        let step = sessions.step(1, 7, 0, 0, 0).unwrap();
        assert_eq!(step.run(|_| Err::<(), ()>(())), Some(Err(())));
        assert_eq!(run(&step), Some(Ok(())));
    }

    #[test]
    fn slots_are_bounded_and_go_with_their_connection() {
        let sessions = sessions(2);
        sessions.step(1, 1, 0, 0, 0).unwrap();
        sessions.step(2, 1, 0, 0, 0).unwrap();
        assert_eq!(
            sessions.step(1, 2, 0, 0, 0).unwrap_err().code,
            ErrorCode::Overloaded
        );
        sessions.end_connection(1);
        assert_eq!(sessions.len(), 1);
        assert!(sessions.step(2, 2, 0, 0, 0).is_ok());
    }

    #[test]
    fn one_connection_does_not_take_every_slot() {
        let sessions = sessions(100);
        for session in 0..3 {
            sessions.step(1, session, 0, 0, 0).unwrap();
        }
        let refusal = sessions.step(1, 3, 0, 0, 0).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::Overloaded);
        assert!(refusal.message.contains("on this connection"));
        assert!(sessions.step(1, 2, 0, 0, 0).is_ok(), "begun anew");
        assert!(sessions.step(2, 3, 0, 0, 0).is_ok());
        sessions.end_connection(1);
        sessions.begin_connection(1);
        assert!(sessions.step(1, 3, 0, 0, 0).is_ok());
    }

    #[test]
    fn a_request_that_outlives_its_connection_leaves_no_slot() {
        let sessions = sessions(2);
        sessions.end_connection(1);
        let late = sessions.step(1, 1, 0, 0, 0).unwrap_err();
        assert_eq!(late.code, ErrorCode::UnknownSession);
        assert!(sessions.is_empty());
    }
}
