//! Activations to bytes and back, by codec spec.
