//! The ONNX protobuf types, generated at build time from `proto/onnx.proto` (Apache-2.0).

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    reason = "generated; the documentation is in proto/onnx.proto"
)]

include!(concat!(env!("OUT_DIR"), "/onnx.rs"));
