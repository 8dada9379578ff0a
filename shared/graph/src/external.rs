//! Tensors whose content lies in another file: found beside the model, mapped, never copied.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::proto::{
    AttributeProto, GraphProto, ModelProto, SparseTensorProto, TensorProto, tensor_proto,
};
use crate::read::ReadProblem;
use crate::tensor::Initializer;

/// Maps the external data of every tensor of `model` into its `raw_data`. `folder` is the model
/// file's own; `None` where the model came from memory.
pub(crate) fn resolve(model: &mut ModelProto, folder: Option<&Path>) -> Result<(), ReadProblem> {
    let mut files = Files {
        folder,
        mapped: HashMap::new(),
    };
    let mut graphs: Vec<&mut GraphProto> = model.graph.iter_mut().collect();
    for training in &mut model.training_info {
        graphs.extend(training.initialization.iter_mut());
        graphs.extend(training.algorithm.iter_mut());
    }
    for function in &mut model.functions {
        for attr in function
            .node
            .iter_mut()
            .flat_map(|node| &mut node.attribute)
        {
            files.resolve_attribute(attr, &mut graphs)?;
        }
        for attr in &mut function.attribute_proto {
            files.resolve_attribute(attr, &mut graphs)?;
        }
    }
    while let Some(graph) = graphs.pop() {
        graph
            .initializer
            .iter_mut()
            .try_for_each(|tensor| files.resolve(tensor))?;
        graph
            .sparse_initializer
            .iter_mut()
            .try_for_each(|tensor| files.resolve_sparse(tensor))?;
        for attr in graph.node.iter_mut().flat_map(|node| &mut node.attribute) {
            files.resolve_attribute(attr, &mut graphs)?;
        }
    }
    Ok(())
}

struct Files<'a> {
    folder: Option<&'a Path>,
    mapped: HashMap<String, Bytes>,
}

impl Files<'_> {
    fn resolve_attribute<'g>(
        &mut self,
        attr: &'g mut AttributeProto,
        graphs: &mut Vec<&'g mut GraphProto>,
    ) -> Result<(), ReadProblem> {
        attr.t
            .iter_mut()
            .chain(&mut attr.tensors)
            .try_for_each(|tensor| self.resolve(tensor))?;
        attr.sparse_tensor
            .iter_mut()
            .chain(&mut attr.sparse_tensors)
            .try_for_each(|tensor| self.resolve_sparse(tensor))?;
        graphs.extend(attr.g.iter_mut().chain(&mut attr.graphs));
        Ok(())
    }

    fn resolve_sparse(&mut self, sparse: &mut SparseTensorProto) -> Result<(), ReadProblem> {
        sparse
            .values
            .iter_mut()
            .chain(&mut sparse.indices)
            .try_for_each(|tensor| self.resolve(tensor))
    }

    fn resolve(&mut self, tensor: &mut TensorProto) -> Result<(), ReadProblem> {
        if tensor.data_location() != tensor_proto::DataLocation::External {
            return Ok(());
        }
        let name = tensor.name().to_owned();
        let entry = |key: &str| {
            let found = tensor.external_data.iter().find(|entry| entry.key() == key);
            found.map(|entry| entry.value().to_owned())
        };
        let fail = |problem: String| ReadProblem::ExternalData {
            tensor: name.clone(),
            problem,
        };
        let location = entry("location").ok_or_else(|| fail("it has no `location`".into()))?;
        let number = |key: &str| match entry(key) {
            None => Ok(None),
            Some(text) => text
                .parse::<u64>()
                .map(Some)
                .map_err(|_| fail(format!("`{key}` is `{text}`, which is no byte count"))),
        };
        let offset = number("offset")?.unwrap_or(0);
        let length = number("length")?;
        let file = self.map(&location).map_err(fail)?;
        let size = file.len() as u64;
        let implied = Initializer::from(tensor.clone())
            .byte_len()
            .map_err(|error| fail(error.problem))?;
        let length = length.unwrap_or(implied);
        let range = (usize::try_from(offset).ok())
            .zip(offset.checked_add(length).filter(|&end| end <= size))
            .and_then(|(start, end)| Some(start..usize::try_from(end).ok()?));
        let Some(range) = range else {
            return Err(fail(format!(
                "bytes {offset} to {offset} + {length} were asked of `{location}`, which has {size}: \
                 the file was cut short or belongs to another model"
            )));
        };
        tensor.raw_data = Some(file.slice(range));
        tensor.external_data.clear();
        tensor.data_location = None;
        Ok(())
    }

    fn map(&mut self, location: &str) -> Result<Bytes, String> {
        if let Some(file) = self.mapped.get(location) {
            return Ok(file.clone());
        }
        let folder = self.folder.ok_or_else(|| {
            format!("its data is in the file `{location}`, but the model came from memory: read it from its file")
        })?;
        let path = safe_join(folder, location)?;
        let mapped = seamline_plan::map_file(&path).map_err(|error| {
            format!("{}: {error}; put the file beside the model", path.display())
        })?;
        self.mapped
            .insert(location.to_owned(), mapped.bytes().clone());
        Ok(mapped.bytes().clone())
    }
}

/// `location` below `folder`; a model must not read files elsewhere, whatever it says.
fn safe_join(folder: &Path, location: &str) -> Result<PathBuf, String> {
    let refused = |why: &str| {
        format!("location `{location}` {why}; only plain files beside or below the model are read")
    };
    if location.is_empty() || location.contains(['\\', ':', '\0']) || location.starts_with('/') {
        return Err(refused("is not a relative path"));
    }
    let mut path = folder.to_owned();
    for part in location.split('/') {
        match part {
            "" | "." => continue,
            ".." => return Err(refused("leaves the model's folder")),
            part => path.push(part),
        }
        // A missing file is reported by the mapping that follows.
        if std::fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink()) {
            return Err(refused("is, or lies behind, a symbolic link"));
        }
    }
    Ok(path)
}
