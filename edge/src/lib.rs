//! The device SDK of Seamline: run the head of a cut network here and let a service finish it.
//!
//! ```no_run
//! use seamline_edge::{Client, Runtime, RuntimeOptions, Store, Tensor, Values, locate};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = Runtime::load(&RuntimeOptions::new(locate(None, &Store::from_env())?))?;
//! let client = Client::builder("orientation.seam")
//!     .runtime(runtime)
//!     .cloud("cloud.example:7443")
//!     .identity_folder("identity".as_ref(), "camera-7")
//!     .build()
//!     .await?;
//! let picture = Tensor::from_vec(vec![1, 480, 640, 3], vec![0u8; 480 * 640 * 3])?;
//! let answer = client.infer(Values::from([("picture".to_owned(), picture)])).await?;
//! println!("{:?} in {:?}", answer.first::<f32>()?, answer.timings.total);
//! # Ok(())
//! # }
//! ```
//!
//! [`ClientBuilder::build_blocking`] gives the same without an async runtime,
//! [`Client::stream`] keeps several frames in flight, [`Client::session`] carries the state of a
//! recurrent net. Where the bundle was planned (it has a `costs.json`), each request takes the cut
//! that is best at the moment: [`ClientBuilder::adaptive`], [`Client::adaptation`]; what its requests
//! teach about the costs can be kept: [`Client::learned_costs`].

#![forbid(unsafe_code)]

pub mod adapt;
mod adaptive;
mod answer;
mod blocking;
mod builder;
mod client;
mod device;
mod error;
mod link;
mod probe;
mod session;
mod stream;

pub use adaptive::Adaptation;
pub use answer::{Answer, Timings};
pub use blocking::BlockingClient;
pub use builder::ClientBuilder;
pub use client::{Client, Prepared};
pub use device::Values;
pub use error::{Error, ErrorKind};
pub use probe::{LinkProbe, LinkProber, ProbedRate};
pub use seamline_assets::Store;
pub use seamline_net::{Congestion, TransportOptions};
pub use seamline_ort::{Provider, Runtime, RuntimeError, RuntimeOptions, locate};
pub use seamline_plan::{
    Costs, CostsError, CutOption, DType, Dim, Element, InputError, LinkState, Tensor, TensorSpec,
    read_input,
};
pub use session::Session;
pub use stream::{Answers, FrameId, FrameSender, StreamMode, StreamOptions};
