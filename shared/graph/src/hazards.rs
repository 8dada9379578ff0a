//! Models that must not be given to ONNX Runtime: it never returns from making their sessions.

use thiserror::Error;

use crate::bodies::{all_nodes, bodies_of};
use crate::graph::{Graph, canonical_domain};
use crate::proto::AttributeProto;

/// A node that hangs ONNX Runtime.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("node {node}: {hazard}")]
pub struct HazardError {
    /// The node and its operator.
    pub node: String,
    /// What is wrong with it.
    pub hazard: Hazard,
}

/// What hangs ONNX Runtime.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Hazard {
    /// An equation outside the grammar.
    #[error(
        "`{equation}` is no Einsum equation; expected terms of letters, each with at most one \
         `...`, joined by `,`, and at most one `->`, for example `bij,bjk->bik`: export the model \
         again"
    )]
    Equation {
        /// The equation.
        equation: String,
    },
}

impl Graph {
    /// Refuses what would hang ONNX Runtime, in bodies and model-local functions too.
    ///
    /// # Errors
    /// [`HazardError`], which names the node.
    pub fn check_hazards(&self) -> Result<(), HazardError> {
        for node in &self.nodes {
            check(&node.domain, &node.op_type, &node.name, &node.attributes)?;
            let mut inner = node.bodies().flat_map(|(_, body)| all_nodes(body));
            inner.try_for_each(check_proto)?;
        }
        for node in self.header.functions().iter().flat_map(|it| &it.node) {
            check_proto(node)?;
            let mut inner = bodies_of(node).flat_map(all_nodes);
            inner.try_for_each(check_proto)?;
        }
        Ok(())
    }
}

fn check_proto(node: &crate::proto::NodeProto) -> Result<(), HazardError> {
    check(node.domain(), node.op_type(), node.name(), &node.attribute)
}

fn check(
    domain: &str,
    op: &str,
    name: &str,
    attributes: &[AttributeProto],
) -> Result<(), HazardError> {
    if op != "Einsum" || !canonical_domain(domain).is_empty() {
        return Ok(());
    }
    let equation = attributes.iter().find(|attr| attr.name() == "equation");
    let Some(equation) = equation.and_then(|attr| attr.s.as_ref()) else {
        return Ok(());
    };
    let equation = String::from_utf8_lossy(equation);
    if is_equation(&equation) {
        return Ok(());
    }
    Err(HazardError {
        node: format!("`{name}` ({op})"),
        hazard: Hazard::Equation {
            equation: equation.into_owned(),
        },
    })
}

fn is_equation(text: &str) -> bool {
    let text: String = text.chars().filter(|&c| c != ' ').collect();
    let (left, right) = text.split_once("->").unwrap_or((&text, ""));
    let is_term = |term: &str| {
        let (before, after) = term.split_once("...").unwrap_or((term, ""));
        let letters = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphabetic());
        letters(before) && letters(after)
    };
    left.split(',').all(is_term) && is_term(right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::{self, GraphBuilder};
    use seamline_plan::DType;

    #[test]
    fn equations_are_told_from_what_hangs_the_runtime() {
        for good in [
            "ij,jk",
            "ij , jk -> ik",
            "...ij,...jk->...ik",
            "i->",
            "->",
            "",
        ] {
            assert!(is_equation(good), "{good}");
        }
        for bad in [
            "i.j->ij",
            "ij..->ij",
            "....ij->ij",
            "ij-",
            "ij-ij",
            "i1->i1",
            "a->b->c",
        ] {
            assert!(!is_equation(bad), "{bad}");
        }
    }

    #[test]
    fn an_equation_that_hangs_the_runtime_is_refused_by_node_in_bodies_too() {
        let einsum = |builder: &mut GraphBuilder| {
            let equation = vec![builder::string("equation", "i.j->ij")];
            builder.node_with("Einsum", &["x"], &["y"], equation);
            builder.output("y", DType::F32, &[2.into(), 2.into()]);
        };
        let mut flat = GraphBuilder::new("flat", 17);
        flat.input("x", DType::F32, &[2.into(), 2.into()]);
        einsum(&mut flat);
        let mut body = GraphBuilder::new("body", 17);
        einsum(&mut body);
        let bodies = ["then_branch", "else_branch"].map(|name| builder::body(name, body.to_body()));
        let mut nested = GraphBuilder::new("nested", 17);
        nested
            .input("x", DType::F32, &[2.into(), 2.into()])
            .input("flag", DType::Bool, &[])
            .node_with("If", &["flag"], &["z"], bodies.into())
            .output("z", DType::F32, &[2.into(), 2.into()]);
        for builder in [flat, nested] {
            let error = builder.build().unwrap().check_hazards().unwrap_err();
            assert_eq!(error.node, "`y/node` (Einsum)");
            assert!(error.to_string().contains("i.j->ij"), "{error}");
        }
    }
}
