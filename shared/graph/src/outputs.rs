//! A graph as the bytes of an ONNX file: with other outputs, for probe runs that look at inner
//! values, or with its weights in a file that several models share.

use prost::Message;

use crate::proto::ValueInfoProto;
use crate::{ExternalWeights, Graph};

impl Graph {
    /// The model as an ONNX file whose outputs are the values called `names`. A value without a
    /// declared type is given none: ONNX Runtime infers it.
    ///
    /// Weights in external files stay there, relative to the folder of [`Graph::source`].
    pub fn encode_with_outputs(&self, names: &[String]) -> Vec<u8> {
        let mut model = self.to_model_proto();
        let output = |name: &String| {
            let declared = self
                .find(name)
                .and_then(|id| self.value(id).declared.clone());
            declared.unwrap_or_else(|| ValueInfoProto {
                name: Some(name.clone()),
                ..ValueInfoProto::default()
            })
        };
        if let Some(graph) = &mut model.graph {
            graph.output = names.iter().map(output).collect();
            // A value may be declared once only.
            graph
                .value_info
                .retain(|info| !names.iter().any(|name| name == info.name()));
        }
        model.encode_to_vec()
    }

    /// The model as an ONNX file whose large weights are laid out in `weights`.
    pub fn encode_with_external(&self, weights: &mut ExternalWeights) -> Vec<u8> {
        let mut model = self.to_model_proto();
        weights.take(&mut model);
        model.encode_to_vec()
    }
}
