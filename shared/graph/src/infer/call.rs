//! A node as a rule sees it: operator, attributes, what is known of its inputs.

use seamline_plan::{DType, Dim};

use super::constant;
use super::known::{Fact, Known, MAX_RANK};
use crate::proto::AttributeProto;

/// A parameter that a node may leave out.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Param<T> {
    /// Left out: the operator's default holds.
    Absent,
    /// Given, but only the run knows it.
    Unknown,
    /// Given and known.
    Is(T),
}

/// One node with the facts about its inputs.
pub(super) struct Call<'a> {
    /// The operator, e.g. `Conv`.
    pub(super) op: &'a str,
    /// Version of the operator set that the node's domain is imported in.
    pub(super) version: i64,
    pub(super) attributes: &'a [AttributeProto],
    /// By position; `None` where an optional input is left out.
    pub(super) inputs: Vec<Option<&'a Fact>>,
    pub(super) outputs: usize,
}

impl Call<'_> {
    /// Number of inputs by position, left-out ones before the last given one included.
    pub(super) fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// Number of outputs by position.
    pub(super) fn output_count(&self) -> usize {
        self.outputs
    }

    pub(super) fn has_input(&self, input: usize) -> bool {
        self.input(input).is_some()
    }

    fn input(&self, input: usize) -> Option<&Fact> {
        self.inputs.get(input).copied().flatten()
    }

    pub(super) fn dtype(&self, input: usize) -> Option<DType> {
        self.input(input)?.dtype
    }

    pub(super) fn shape(&self, input: usize) -> Option<&[Dim]> {
        self.input(input)?.shape.as_deref()
    }

    pub(super) fn rank(&self, input: usize) -> Option<usize> {
        self.shape(input).map(<[Dim]>::len)
    }

    /// The elements of an input, where it is small and followed.
    pub(super) fn known(&self, input: usize) -> Option<&Known> {
        self.input(input)?.known.as_ref()
    }

    /// The length of an input of rank 1 that spells dimensions or axes: `None` where it is more
    /// than a rank can be.
    pub(super) fn vector_length(&self, input: usize) -> Option<usize> {
        match self.shape(input)? {
            [length] => usize::try_from(length.fixed()?)
                .ok()
                .filter(|&length| length <= MAX_RANK),
            _ => None,
        }
    }

    /// The elements of an optional integer input.
    pub(super) fn input_ints(&self, input: usize) -> Param<Vec<i64>> {
        match (self.has_input(input), self.known(input)) {
            (false, _) => Param::Absent,
            (true, known) => known
                .and_then(Known::ints)
                .map_or(Param::Unknown, Param::Is),
        }
    }

    /// A list that older operator sets have as an attribute, newer ones as an input.
    pub(super) fn attribute_or_input(&self, name: &str, input: usize) -> Param<Vec<i64>> {
        match self.ints(name) {
            Some(list) => Param::Is(list),
            None => self.input_ints(input),
        }
    }

    /// An axis counted from the front; `None` outside `rank`.
    pub(super) fn axis(&self, axis: i64, rank: usize) -> Option<usize> {
        let count = i64::try_from(rank).ok()?;
        let axis = if axis < 0 {
            axis.checked_add(count)?
        } else {
            axis
        };
        usize::try_from(axis).ok().filter(|&axis| axis < rank)
    }

    fn attribute(&self, name: &str) -> Option<&AttributeProto> {
        self.attributes.iter().find(|attr| attr.name() == name)
    }

    pub(super) fn int(&self, name: &str) -> Option<i64> {
        self.attribute(name)?.i
    }

    pub(super) fn ints(&self, name: &str) -> Option<Vec<i64>> {
        self.attribute(name).map(|attr| attr.ints.clone())
    }

    pub(super) fn float(&self, name: &str) -> Option<f32> {
        self.attribute(name)?.f
    }

    pub(super) fn floats(&self, name: &str) -> Option<&[f32]> {
        self.attribute(name).map(|attr| attr.floats.as_slice())
    }

    pub(super) fn string(&self, name: &str) -> Option<String> {
        let bytes = self.attribute(name)?.s.as_ref()?;
        String::from_utf8(bytes.to_vec()).ok()
    }

    /// An attribute that holds ONNX's code of a dtype.
    pub(super) fn dtype_attribute(&self, name: &str) -> Option<DType> {
        DType::from_code(i32::try_from(self.int(name)?).ok()?)
    }

    /// An attribute that holds a dense tensor.
    pub(super) fn tensor_attribute(&self, name: &str) -> Option<Fact> {
        Some(constant::fact_of_tensor(self.attribute(name)?.t.as_ref()?))
    }
}

/// What a rule says of the outputs, by position. Statements about positions that the node does
/// not have are dropped.
pub(super) struct Out {
    pub(super) facts: Vec<Fact>,
}

impl Out {
    pub(super) fn new(outputs: usize) -> Out {
        Out {
            facts: vec![Fact::default(); outputs],
        }
    }

    pub(super) fn dtype(&mut self, output: usize, dtype: Option<DType>) {
        if let Some(fact) = self.facts.get_mut(output) {
            fact.dtype = dtype;
        }
    }

    pub(super) fn shape(&mut self, output: usize, shape: Vec<Dim>) {
        if let Some(fact) = self.facts.get_mut(output) {
            fact.shape = Some(shape);
        }
    }

    pub(super) fn known(&mut self, output: usize, known: Known) {
        if let Some(fact) = self.facts.get_mut(output) {
            fact.known = Some(known);
        }
    }

    pub(super) fn fact(&mut self, output: usize, fact: Fact) {
        if let Some(slot) = self.facts.get_mut(output) {
            *slot = fact;
        }
    }
}
