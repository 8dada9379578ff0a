//! Model graphs: ONNX reading and writing, shape inference, seams, extraction.
