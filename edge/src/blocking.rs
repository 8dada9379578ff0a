//! The same client for programs without an async runtime.

use std::sync::Arc;

use seamline_plan::{Costs, Manifest};
use tokio::runtime::Runtime as Tokio;

use crate::adaptive::Adaptation;
use crate::answer::Answer;
use crate::builder::ClientBuilder;
use crate::client::Client;
use crate::device::Values;
use crate::error::{Error, ErrorKind};

/// A [`Client`] that blocks its caller. The head runs in the caller's thread; one thread of its
/// own drives the network. Call it from no async task.
#[derive(Clone)]
pub struct BlockingClient {
    client: Client,
    tokio: Arc<Tokio>,
}

impl ClientBuilder {
    /// As [`ClientBuilder::build`], for programs without an async runtime.
    ///
    /// # Errors
    /// As [`ClientBuilder::build`].
    pub fn build_blocking(self) -> Result<BlockingClient, Error> {
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("seamline-edge")
            .enable_all()
            .build()
            .map_err(|error| Error::new(ErrorKind::Runtime, error))?;
        let client = tokio.block_on(self.build())?;
        Ok(BlockingClient {
            client,
            tokio: Arc::new(tokio),
        })
    }
}

impl BlockingClient {
    /// The contract: inputs, outputs, cuts.
    pub fn manifest(&self) -> &Manifest {
        self.client.manifest()
    }

    /// Answers one request.
    ///
    /// # Errors
    /// As [`Client::infer`].
    pub fn infer(&self, inputs: Values) -> Result<Answer, Error> {
        let deadline = self.client.deadline();
        let prepared = self.client.prepare_here(inputs)?;
        self.tokio
            .block_on(self.client.send_until(prepared, deadline))
    }

    /// As [`Client::adaptation`].
    pub fn adaptation(&self) -> Option<Adaptation> {
        self.client.adaptation()
    }

    /// As [`Client::learned_costs`].
    pub fn learned_costs(&self) -> Option<Costs> {
        self.client.learned_costs()
    }

    /// Closes the connection.
    pub fn close(&self) {
        self.tokio.block_on(self.client.close());
    }
}
