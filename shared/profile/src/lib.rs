//! Measures one machine on a kit and gives its profile: what `seamline-edge profile` and
//! `seamline-cloud profile` do.
//!
//! A kit ([`seamline_plan::Kit`]) holds heads and tails of the seams on a planner's shortlist. Each
//! is run whole, as it would run for a request, since times of single layers do not add up once the
//! runtime fuses them. Machines drift (other programs, heat), so the parts are visited in several
//! passes and the times of all passes are pooled. After each visit the figures are on disk: a
//! measurement that was interrupted goes on where it was.

#![forbid(unsafe_code)]

mod codecs;
mod error;
mod machine;
mod measure;
mod nodes;
mod options;
mod partial;
mod text;
mod timing;
mod visit;

pub use error::MeasureError;
pub use machine::{describe, resident_bytes};
pub use measure::{Measured, Progress, RanOn, measure, partial_path};
pub use options::{Effort, MeasureOptions};
