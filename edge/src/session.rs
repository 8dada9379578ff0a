//! Sessions of recurrent nets.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use seamline_net::random_id;
use seamline_plan::Cut;

use crate::adaptive::Choice;
use crate::answer::Answer;
use crate::client::Client;
use crate::device::{DeviceState, Values};
use crate::error::{Error, ErrorKind};
use crate::link::Step;

/// A session of a recurrent net. Its state lives on the device for the head and in the service
/// for the tail; a failed step leaves both as they were.
pub struct Session {
    client: Client,
    choice: Choice,
    id: u64,
    step: u64,
    state: Arc<Mutex<DeviceState>>,
}

impl Session {
    pub(crate) fn new(client: Client, choice: Choice) -> Result<Session, Error> {
        let id = random_id().map_err(|error| Error::new(ErrorKind::Identity, error))?;
        Ok(Session {
            client,
            choice,
            // Ids are local to a connection: half of the random bits are plenty.
            id: (id >> 64) as u64,
            step: 0,
            state: Arc::new(Mutex::new(DeviceState::default())),
        })
    }

    /// The cut of all of its steps: what the client chose when the session began. State is on both
    /// sides of it and cannot move.
    pub fn cut(&self) -> &Cut {
        &self.client.manifest().cuts[self.choice.cut]
    }

    /// Answers the next step. State inputs are not given; state outputs are not returned.
    ///
    /// # Errors
    /// As [`Client::infer`].
    pub async fn infer(&mut self, inputs: Values) -> Result<Answer, Error> {
        let started = Instant::now();
        self.client.device().check(&inputs)?;
        let (client, state) = (self.client.clone(), Arc::clone(&self.state));
        let choice = self.choice.clone();
        let head = move || client.run_head(&choice, inputs, Some(&state.lock()));
        let encoded = tokio::task::spawn_blocking(head)
            .await
            .map_err(|error| Error::new(ErrorKind::Runtime, error))??;
        let step = Step {
            session: self.id,
            step: self.step,
        };
        let deadline = self.client.deadline_of(started);
        let finish = self
            .client
            .finish(&self.choice, &encoded, started, deadline, Some(step));
        let (values, mut answer) = finish.await?;
        let device = self.client.device();
        answer.outputs = device.collect(values, Some(&mut self.state.lock()));
        self.step += 1;
        Ok(answer)
    }

    /// Steps that were answered.
    pub fn steps(&self) -> u64 {
        self.step
    }
}
