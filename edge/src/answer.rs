//! What the caller gets: outputs and where the time went.

use std::time::Duration;

use ndarray::ArrayViewD;
use seamline_plan::{Element, Tensor};

use crate::error::{Error, ErrorKind};

/// Where the time of one request went. The parts add up to [`Timings::total`], but for what passes
/// between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// The head on the device.
    pub edge: Duration,
    /// Encoding on the device.
    pub encode: Duration,
    /// On the way, both directions: the round trip less what the service accounts for.
    pub wire: Duration,
    /// Waiting in the service for a batch.
    pub queue: Duration,
    /// The tail in the service.
    pub cloud: Duration,
    /// Decoding: crossing values and encoding of the answer in the service, the answer here.
    pub decode: Duration,
    /// From the call to the answer.
    pub total: Duration,
}

/// The answer to one request.
#[derive(Clone, Debug)]
pub struct Answer {
    pub(crate) outputs: Vec<(String, Tensor)>,
    /// Where the time went.
    pub timings: Timings,
    /// The id of the cut that was used. Where the device finished alone because the service did not
    /// answer, that behind the last stage.
    pub cut: String,
    /// The codec of the values that crossed, several different ones joined by `+`; `None` where
    /// nothing crossed.
    pub codec: Option<String>,
    /// Payload bytes that were sent; where the device finished alone, for nothing.
    pub bytes_sent: u64,
    /// Payload bytes that came back.
    pub bytes_received: u64,
    /// Requests that the service ran together with this one, itself included; 0 where the device
    /// did everything.
    pub batch_size: u32,
}

impl Answer {
    /// The outputs in the model's order.
    pub fn outputs(&self) -> &[(String, Tensor)] {
        &self.outputs
    }

    /// The output called `name`.
    ///
    /// # Errors
    /// [`ErrorKind::Input`] where the model has no such output.
    pub fn output(&self, name: &str) -> Result<&Tensor, Error> {
        self.outputs
            .iter()
            .find(|(output, _)| output == name)
            .map(|(_, tensor)| tensor)
            .ok_or_else(|| {
                let names: Vec<&str> = self.outputs.iter().map(|(name, _)| name.as_str()).collect();
                Error::input(format!(
                    "there is no output `{name}`; there are {}",
                    names.join(", ")
                ))
            })
    }

    /// The output called `name` as an array.
    ///
    /// # Errors
    /// [`ErrorKind::Input`] where there is no such output or it has another element type.
    pub fn view<T: Element>(&self, name: &str) -> Result<ArrayViewD<'_, T>, Error> {
        self.output(name)?
            .view::<T>()
            .map_err(|error| Error::new(ErrorKind::Input, error))
    }

    /// The first output as an array.
    ///
    /// # Errors
    /// [`ErrorKind::Input`] where it has another element type.
    pub fn first<T: Element>(&self) -> Result<ArrayViewD<'_, T>, Error> {
        let (name, _) = self
            .outputs
            .first()
            .ok_or_else(|| Error::input("the model has no outputs".to_owned()))?;
        self.view(name)
    }
}
