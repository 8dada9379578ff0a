//! QUIC endpoints and identities: a thin tokio driver of seamline-wire.
