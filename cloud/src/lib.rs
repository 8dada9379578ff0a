//! The service of Seamline: dynamic batching and tails.
