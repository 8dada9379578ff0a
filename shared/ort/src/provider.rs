//! Execution providers: who computes a node.

use ort::ep;
use serde::{Deserialize, Serialize};

/// An execution provider of ONNX Runtime. A session takes an ordered list; what a provider does
/// not take falls to the next one, and in the end to the CPU.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Provider {
    /// ONNX Runtime's own CPU kernels; always there.
    Cpu,
    /// Intel OpenVINO.
    OpenVino,
    /// Qualcomm HTP.
    Qnn,
    /// Apple Core ML.
    CoreMl,
    /// Android NNAPI.
    Nnapi,
    /// XNNPACK.
    Xnnpack,
    /// NVIDIA CUDA.
    Cuda,
    /// NVIDIA TensorRT.
    TensorRt,
}

impl Provider {
    /// Every provider.
    pub const ALL: [Provider; 8] = [
        Provider::Cpu,
        Provider::OpenVino,
        Provider::Qnn,
        Provider::CoreMl,
        Provider::Nnapi,
        Provider::Xnnpack,
        Provider::Cuda,
        Provider::TensorRt,
    ];

    /// The name that users type.
    pub const fn name(&self) -> &'static str {
        match self {
            Provider::Cpu => "cpu",
            Provider::OpenVino => "openvino",
            Provider::Qnn => "qnn",
            Provider::CoreMl => "coreml",
            Provider::Nnapi => "nnapi",
            Provider::Xnnpack => "xnnpack",
            Provider::Cuda => "cuda",
            Provider::TensorRt => "tensorrt",
        }
    }

    /// Registration that fails, instead of going on without the provider.
    pub(crate) fn dispatch(&self) -> ep::ExecutionProviderDispatch {
        match self {
            Provider::Cpu => ep::CPU::default().build(),
            Provider::OpenVino => ep::OpenVINO::default().build(),
            Provider::Qnn => ep::QNN::default().build(),
            Provider::CoreMl => ep::CoreML::default().build(),
            Provider::Nnapi => ep::NNAPI::default().build(),
            Provider::Xnnpack => ep::XNNPACK::default().build(),
            Provider::Cuda => ep::CUDA::default().build(),
            Provider::TensorRt => ep::TensorRT::default().build(),
        }
        .error_on_failure()
    }

    /// Whether the loaded library was built with this provider.
    pub(crate) fn is_compiled_in(&self) -> bool {
        use ep::ExecutionProvider;
        let available = match self {
            Provider::Cpu => return true,
            Provider::OpenVino => ep::OpenVINO::is_available(),
            Provider::Qnn => ep::QNN::is_available(),
            Provider::CoreMl => ep::CoreML::is_available(),
            Provider::Nnapi => ep::NNAPI::is_available(),
            Provider::Xnnpack => ep::XNNPACK::is_available(),
            Provider::Cuda => ep::CUDA::is_available(),
            Provider::TensorRt => ep::TensorRT::is_available(),
        };
        available.unwrap_or(false)
    }
}

impl std::fmt::Display for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Provider {
    type Err = String;

    fn from_str(name: &str) -> Result<Provider, String> {
        Provider::ALL
            .into_iter()
            .find(|provider| provider.name() == name)
            .ok_or_else(|| {
                let names = Provider::ALL.map(|provider| provider.name()).join(", ");
                format!("`{name}` is no execution provider; there are {names}")
            })
    }
}
