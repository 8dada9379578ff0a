//! ONNX Runtime for Seamline: locate, load, sessions over stages, execution providers.
