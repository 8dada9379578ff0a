//! What the demo, the tests and the benchmarks show models: rendered text, photographs, sentences.

pub mod calibration;
pub mod text;
mod word_pieces;
