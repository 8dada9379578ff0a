//! A link between devices and a service that is slow, far, lossy or gone: a UDP proxy in user
//! space.
//!
//! [`Link`] is the whole behaviour as a plain struct that is told the time, so that tests of it run
//! in virtual time and exactly. [`LinkProxy`] runs it in real time between sockets:
//!
//! ```no_run
//! use seamline_tests::link::{LinkOptions, LinkProxy, Loss};
//!
//! # let service = "127.0.0.1:7443".parse().unwrap();
//! let mut options = LinkOptions::wifi();
//! options.up.loss = Loss::Random(0.02);
//! let link = LinkProxy::start(service, options).unwrap();
//! // Devices connect to `link.addr()` instead of `service`.
//! link.rebind();
//! ```
//!
//! A link has one bottleneck each way, which all of its clients share; for devices with a radio
//! each, start one proxy each. A packet passes, in this order: the largest payload that the link
//! takes, the queue and the transmitter (which is busy for payload / rate), loss, the delay with
//! jitter, and a blackout. What is lost has used the transmitter, as on the air.

mod link_state;
mod loss;
mod options;
mod pipe;
mod proxy;

pub use link_state::{Arrival, Departure, Link};
pub use loss::Loss;
pub use options::{LinkOptions, PipeOptions, Queue, RebindTo, Reorder};
pub use pipe::PipeStats;
pub use proxy::{LinkProxy, LinkStats};
