//! Generates the ONNX types from `proto/onnx.proto` without protoc.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto/onnx.proto");
    let descriptors = protox::compile(["onnx.proto"], ["proto"])?;
    prost_build::Config::new()
        // Weights stay where the file was mapped: a `Bytes` field shares the decoded buffer.
        .bytes(["."])
        // The file's comments hold indented text, which rustdoc would take for tests.
        .disable_comments(["."])
        .compile_fds(descriptors)?;
    Ok(())
}
