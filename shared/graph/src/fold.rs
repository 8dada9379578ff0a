//! Values that are known before any run become constants, so that neither side sends them.

use seamline_plan::{Bindings, DType};

use crate::builder;
use crate::infer::infer;
use crate::read::ReadError;
use crate::{Graph, Node};

impl Graph {
    /// The graph with every node of one output replaced by a `Constant` of the same names, where
    /// inference knows the output to be these integers whatever the symbols stand for: a size
    /// that an exporter computes although the model fixes it. Nothing else changes, and the graph
    /// gives the same outputs.
    ///
    /// # Errors
    /// [`ReadError`]; none where the graph itself was read.
    pub fn with_known_values(&self) -> Result<Graph, ReadError> {
        let types = infer(self, &Bindings::new());
        let known = |node: &Node| {
            let [Some(output)] = node.outputs[..] else {
                return None;
            };
            let computed = !node.is("Constant") && node.reads().next().is_some();
            if !computed || types.dtype(output) != Some(DType::I64) {
                return None;
            }
            Some((types.known_integers(output)?, types.fixed_shape(output)?))
        };
        let mut model = self.to_model_proto();
        let nodes = model.graph.iter_mut().flat_map(|graph| &mut graph.node);
        let mut changed = false;
        for (proto, node) in nodes.zip(&self.nodes) {
            let Some((values, dims)) = known(node) else {
                continue;
            };
            let raw = values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect();
            let tensor = builder::tensor("", DType::I64, &signed(&dims), raw);
            proto.op_type = Some("Constant".into());
            proto.domain = None;
            proto.input.clear();
            proto.attribute = vec![builder::tensor_attribute("value", tensor)];
            changed = true;
        }
        if !changed {
            return Ok(self.clone());
        }
        let mut graph = Graph::from_model_proto(model)?;
        graph.source.clone_from(&self.source);
        Ok(graph)
    }
}

fn signed(dims: &[u64]) -> Vec<i64> {
    // A tensor whose elements were followed one by one has no dimension beyond 63 bits.
    dims.iter()
        .map(|&dim| i64::try_from(dim).unwrap_or_default())
        .collect()
}

#[cfg(test)]
mod tests {
    use seamline_plan::Dim;

    use super::*;
    use crate::builder::GraphBuilder;

    #[test]
    fn sizes_that_the_model_fixes_become_constants_and_symbols_stay() {
        let mut builder = GraphBuilder::new("sizes", 17);
        builder
            .input("x", DType::F32, &["N".into(), Dim::Fixed(224)])
            .weight_i64("zero", &[], &[0])
            .weight_i64("one", &[], &[1])
            .node("Shape", &["x"], &["shape"])
            .node("Gather", &["shape", "zero"], &["rows"])
            .node("Gather", &["shape", "one"], &["columns"])
            .output("rows", DType::I64, &[])
            .output("columns", DType::I64, &[]);
        let graph = builder.build().unwrap();
        let folded = graph.with_known_values().unwrap();
        let maker = |name: &str| {
            let id = folded.find(name).unwrap();
            folded
                .node(folded.value(id).producer.unwrap())
                .op_type
                .clone()
        };
        assert_eq!(maker("columns"), "Constant");
        assert_eq!(maker("rows"), "Gather");
        let columns = folded.constant(folded.find("columns").unwrap()).unwrap();
        assert_eq!(columns.to_i64s().unwrap(), [224]);
        assert_eq!(columns.dims().unwrap(), Vec::<u64>::new());
    }

    #[test]
    fn an_integer_input_times_zero_is_a_constant_and_a_float_one_is_not() {
        let mut builder = GraphBuilder::new("zero", 17);
        builder
            .input("rate", DType::I64, &[])
            .input("gain", DType::F32, &[])
            .weight_i64("none", &[], &[0])
            .weight_f32("nothing", &[], &[0.0])
            .node("Mul", &["rate", "none"], &["off"])
            .node("Mul", &["gain", "nothing"], &["quiet"])
            .output("off", DType::I64, &[])
            .output("quiet", DType::F32, &[]);
        let folded = builder.build().unwrap().with_known_values().unwrap();
        let off = folded.constant(folded.find("off").unwrap()).unwrap();
        assert_eq!(off.to_i64s().unwrap(), [0]);
        // Not-a-number times zero is not zero.
        assert!(folded.constant(folded.find("quiet").unwrap()).is_none());
    }
}
