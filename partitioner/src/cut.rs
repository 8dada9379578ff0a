//! Seams of a model, and the stages between chosen ones.

use seamline_graph::extract::{ExtractError, Stages, extract_with_sizes};
use seamline_graph::seams::{Costed, Seam, SeamError, SeamFinder, TensorSize};
use seamline_graph::{NodeId, StageCut, ValueId};
use thiserror::Error;

use crate::model::Model;

/// A cut that cannot be made.
#[derive(Debug, Error)]
pub enum CutError {
    /// No such seam.
    #[error(transparent)]
    Seam(#[from] SeamError),
    /// Seams that cannot both be in one bundle.
    #[error(
        "seams {earlier} and {later} do not lie one behind the other: node {node} is before \
         {later} and behind {earlier}; leave one out, or make two bundles"
    )]
    NotNested {
        /// The seam of less depth.
        earlier: String,
        /// The seam of more depth.
        later: String,
        /// A node that the two order differently, and its operator.
        node: String,
    },
    /// The stages cannot be made.
    #[error(transparent)]
    Extract(ExtractError),
}

/// A model with its seams.
pub struct Seams {
    /// The seams worth choosing from, by rising depth.
    pub listed: Vec<Seam>,
    /// The seams that were asked for, by rising depth.
    pub chosen: Vec<Seam>,
}

/// Finds the seams of `model`, and those that `at` names by id or by a value's name.
///
/// # Errors
/// [`SeamError`].
pub fn find_seams(model: &Model, at: &[String]) -> Result<Seams, SeamError> {
    let costed = costed(model);
    let finder = SeamFinder::new(&costed);
    let mut chosen = at
        .iter()
        .map(|name| finder.resolve(name))
        .collect::<Result<Vec<_>, _>>()?;
    chosen.sort_by_key(|seam| seam.depth_flops);
    Ok(Seams {
        listed: finder.seams().to_vec(),
        chosen,
    })
}

pub(crate) fn costed(model: &Model) -> Costed<'_> {
    let size = |id: ValueId| {
        let facts = model.facts(id);
        Some(TensorSize {
            dtype: facts.dtype?,
            dims: facts.reference.clone()?,
        })
    };
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "FLOPs are whole and not negative; beyond u64 the conversion saturates"
    )]
    let flops = |id: NodeId| model.flops[id.index()] as u64;
    Costed::new(&model.graph, size, flops)
}

/// The stages between `seams`.
///
/// # Errors
/// [`CutError`]; seams that cross each other are named by their ids.
pub fn stages(model: &Model, seams: &[Seam]) -> Result<Stages, CutError> {
    let cuts: Vec<StageCut> = seams.iter().map(|seam| seam.cut.clone()).collect();
    let types = |id| {
        let facts = model.facts(id);
        Some((facts.dtype?, facts.symbolic.clone()))
    };
    let result = extract_with_sizes(&model.graph, &cuts, types, &model.sizes);
    let id = |position: usize| {
        seams
            .get(position)
            .map(|seam| seam.id.clone())
            .unwrap_or_default()
    };
    result.map_err(|error| match error {
        ExtractError::NotNested {
            earlier,
            later,
            node,
        } => CutError::NotNested {
            earlier: id(earlier),
            later: id(later),
            node,
        },
        error => CutError::Extract(error),
    })
}
