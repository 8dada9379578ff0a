//! `manifest.json`: the contract of a bundle.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::{Deserialize, Serialize};

use crate::bundle::{BundleError, Side};
use crate::{CodecSpec, TensorSpec};

/// The manifest format that this build writes and reads.
pub const MANIFEST_FORMAT: u32 = 1;

/// The most bytes of a manifest. A large one, with the labels of thousands of classes in it, has
/// some hundred KiB.
pub const MAX_MANIFEST_BYTES: u64 = 64 << 20;

/// The most cuts of a manifest. Nobody chooses among more, each costs the service a warm-up, and
/// checking them takes time with their square.
pub const MAX_CUTS: usize = 1024;

/// The most stages of a manifest.
pub const MAX_STAGES: usize = 2 * MAX_CUTS;

/// The most bytes of one value's reference, which warm-up allocates.
const MAX_REFERENCE_BYTES: u64 = 64 << 30;

/// BLAKE3 of a manifest's bytes: what both sides present to prove that they hold the same
/// contract. Written as 64 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The fingerprint of `content`.
    pub fn of(content: &[u8]) -> Fingerprint {
        Fingerprint(*blake3::hash(content).as_bytes())
    }

    /// The first 12 hex digits, for logs and tables.
    pub fn short(&self) -> String {
        self.to_string()[..12].to_owned()
    }
}

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(blake3::Hash::from_bytes(self.0).to_hex().as_str())
    }
}

impl std::fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = String;

    fn try_from(hex: String) -> Result<Fingerprint, String> {
        blake3::Hash::from_hex(&hex)
            .map(|hash| Fingerprint(*hash.as_bytes()))
            .map_err(|error| format!("`{hex}` is not a hash of 64 hex digits: {error}"))
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> String {
        fingerprint.to_string()
    }
}

/// The contract of a bundle: everything that both sides must agree on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`MANIFEST_FORMAT`].
    pub format: u32,
    /// Where the bundle comes from.
    pub model: ModelInfo,
    /// What the caller gives, in the model's order.
    pub inputs: Vec<TensorSpec>,
    /// What the caller gets, in the model's order.
    pub outputs: Vec<TensorSpec>,
    /// Recurrent state: outputs that are fed back as inputs of the next step of a session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<StateSpec>,
    /// The stages, first to last.
    pub stages: Vec<Stage>,
    /// The cuts that a request may choose from, by rising stage.
    pub cuts: Vec<Cut>,
    /// The id of the cut that is used where nothing else decides.
    pub default_cut: String,
    /// Every file of both sides, by path.
    pub files: Vec<FileEntry>,
}

/// Where a bundle comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelInfo {
    /// The model's name.
    pub name: String,
    /// BLAKE3 of the model file that was cut.
    pub graph_hash: Fingerprint,
    /// The model's own metadata (ONNX `metadata_props`), e.g. class labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// A state input and the output that replaces it after each step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateSpec {
    /// The graph input.
    pub input: String,
    /// The graph output.
    pub output: String,
}

/// The nodes between two neighbouring seams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Values that the stage reads, by name.
    pub inputs: Vec<String>,
    /// Values that the stage makes for later stages or for the caller, by name.
    pub outputs: Vec<String>,
    /// Number of nodes.
    pub nodes: usize,
    /// The stage's ONNX file on the device, relative to the bundle; none where the device does
    /// not hold this stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge: Option<String>,
    /// The stage's ONNX file in the service; none where the service does not hold it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud: Option<String>,
}

/// A place where a request may be cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cut {
    /// The seam's id; `input` for the cut before the first stage.
    pub id: String,
    /// The head is `stages[..stage]`, the tail `stages[stage..]`.
    pub stage: usize,
    /// Share of the model's floating-point operations that lies before the cut, 0 to 1.
    pub depth: f64,
    /// Values that are sent, in the order in which they are sent. State that the tail keeps in
    /// the service is not among them.
    pub crossing: Vec<Crossing>,
    /// Outputs that the tail makes and the service returns. An output made by the head does not
    /// cross; the device adds it to the answer. State that the tail keeps is not among them.
    pub replies: Vec<Reply>,
}

/// A value that crosses a cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crossing {
    /// Name, dtype and shape.
    pub spec: TensorSpec,
    /// Codecs that a request may use for it; the first is the default.
    pub codecs: Vec<CodecSpec>,
    /// The axis along which requests may be joined; none where that is unproven.
    pub batch_axis: Option<usize>,
    /// A shape that occurs: what the batch of one had when the bundle was made. Warm-up uses it.
    pub reference: Vec<u64>,
}

impl Crossing {
    /// The codec called `name` where the value takes it, or else its default.
    pub fn codec(&self, name: Option<&str>) -> &CodecSpec {
        let mut codecs = self.codecs.iter();
        let named = codecs.find(|codec| name == Some(codec.name()));
        // A valid manifest has at least one codec for each value.
        named.or(self.codecs.first()).unwrap_or(&CodecSpec::Raw)
    }
}

/// An output that the service returns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reply {
    /// Name, dtype and shape.
    pub spec: TensorSpec,
    /// How it is sent back.
    pub codec: CodecSpec,
    /// The axis along which a joined answer is split.
    pub batch_axis: Option<usize>,
}

/// A file of the bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Relative to the bundle, `/` between parts, no `.` or `..`.
    pub path: String,
    /// Length in bytes.
    pub bytes: u64,
    /// BLAKE3 of the content.
    pub blake3: Fingerprint,
}

impl Cut {
    /// Whether requests at this cut may be joined: every crossing value and every reply has a
    /// proven batch axis.
    pub fn is_batchable(&self) -> bool {
        !self.replies.is_empty()
            && self
                .crossing
                .iter()
                .all(|crossing| crossing.batch_axis.is_some())
            && self.replies.iter().all(|reply| reply.batch_axis.is_some())
    }
}

impl Manifest {
    /// The cut with the id `id`.
    pub fn cut(&self, id: &str) -> Option<(usize, &Cut)> {
        self.cuts.iter().enumerate().find(|(_, cut)| cut.id == id)
    }

    /// Reads a manifest and checks that it is consistent with itself.
    ///
    /// # Errors
    /// [`BundleError::Manifest`], which says which field is wrong and how.
    pub fn parse(json: &[u8]) -> Result<Manifest, BundleError> {
        // A later format may have other fields: look at its number before anything else.
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let invalid = |error: serde_json::Error| BundleError::Manifest(error.to_string());
        if json.len() as u64 > MAX_MANIFEST_BYTES {
            return Err(BundleError::Manifest(format!(
                "it has {} bytes; at most {MAX_MANIFEST_BYTES} are read",
                json.len()
            )));
        }
        let Format { format } = serde_json::from_slice(json).map_err(invalid)?;
        if format != MANIFEST_FORMAT {
            return Err(BundleError::Format {
                got: format,
                supported: MANIFEST_FORMAT,
            });
        }
        let manifest: Manifest = serde_json::from_slice(json).map_err(invalid)?;
        manifest.validate().map_err(BundleError::Manifest)?;
        Ok(manifest)
    }

    /// The manifest as it is written to disk.
    ///
    /// # Errors
    /// [`BundleError::Manifest`] where it is not consistent with itself.
    pub fn to_json(&self) -> Result<Vec<u8>, BundleError> {
        self.validate().map_err(BundleError::Manifest)?;
        let mut json = serde_json::to_vec_pretty(self)
            .map_err(|error| BundleError::Manifest(error.to_string()))?;
        json.push(b'\n');
        Ok(json)
    }

    fn validate(&self) -> Result<(), String> {
        if self.stages.is_empty() {
            return Err("`stages` is empty; a bundle has at least one".into());
        }
        if self.outputs.is_empty() {
            return Err("`outputs` is empty; a model has at least one".into());
        }
        for (what, count, most) in [
            ("cuts", self.cuts.len(), MAX_CUTS),
            ("stages", self.stages.len(), MAX_STAGES),
        ] {
            if count > most {
                return Err(format!("`{what}` has {count} entries; at most {most}"));
            }
        }
        self.names().try_for_each(check_name)?;
        let paths: BTreeSet<&str> = self.files.iter().map(|file| file.path.as_str()).collect();
        if paths.len() != self.files.len() {
            return Err("`files` lists a path twice".into());
        }
        for file in &self.files {
            check_path(&file.path)?;
        }
        for (index, stage) in self.stages.iter().enumerate() {
            for (path, side) in [(&stage.edge, Side::Edge), (&stage.cloud, Side::Cloud)] {
                let Some(path) = path else { continue };
                if !paths.contains(path.as_str()) {
                    return Err(format!(
                        "stages[{index}] names `{path}`, which `files` lacks"
                    ));
                }
                // A side verifies the files of its own folder, and no others.
                if !side.holds(path) {
                    return Err(format!(
                        "stages[{index}] names `{path}`, which does not lie in `{}/`",
                        side.folder()
                    ));
                }
            }
        }
        let named = |specs: &[TensorSpec], name: &str| specs.iter().any(|spec| spec.name == name);
        for state in &self.states {
            if !named(&self.inputs, &state.input) {
                return Err(format!(
                    "`states` names the input `{}`, which is none",
                    state.input
                ));
            }
            if !named(&self.outputs, &state.output) {
                return Err(format!(
                    "`states` names the output `{}`, which is none",
                    state.output
                ));
            }
        }
        let mut ids = BTreeSet::new();
        for (index, cut) in self.cuts.iter().enumerate() {
            self.validate_cut(cut)
                .map_err(|error| format!("cuts[{index}] (`{}`): {error}", cut.id))?;
            if !ids.insert(&cut.id) {
                return Err(format!("cuts[{index}] repeats the id `{}`", cut.id));
            }
        }
        if !ids.contains(&self.default_cut) {
            return Err(format!(
                "`default_cut` names `{}`, which `cuts` lacks",
                self.default_cut
            ));
        }
        Ok(())
    }

    /// Every name that may reach a log or a terminal.
    fn names(&self) -> impl Iterator<Item = &str> {
        let specs = self.inputs.iter().chain(&self.outputs);
        let stages = self
            .stages
            .iter()
            .flat_map(|stage| stage.inputs.iter().chain(&stage.outputs));
        let cuts = self.cuts.iter().flat_map(|cut| {
            let crossing = cut.crossing.iter().map(|crossing| &crossing.spec);
            let replies = cut.replies.iter().map(|reply| &reply.spec);
            let specs = crossing.chain(replies).map(|spec| spec.name.as_str());
            std::iter::once(cut.id.as_str()).chain(specs)
        });
        std::iter::once(self.model.name.as_str())
            .chain(specs.map(|spec| spec.name.as_str()))
            .chain(stages.map(String::as_str))
            .chain(self.files.iter().map(|file| file.path.as_str()))
            .chain(cuts)
    }

    /// What crosses must be there before the cut and be all that the tail lacks; what comes back
    /// must be made behind it.
    fn validate_values<'a>(&'a self, cut: &'a Cut) -> Result<(), String> {
        let (head, tail) = self.stages.split_at(cut.stage);
        let inputs = self.inputs.iter().map(|spec| spec.name.as_str());
        let made = |stages: &'a [Stage]| {
            let outputs = stages.iter().flat_map(|stage| &stage.outputs);
            outputs.map(String::as_str)
        };
        let before: HashSet<&str> = made(head).chain(inputs).collect();
        let sent = cut
            .crossing
            .iter()
            .map(|crossing| crossing.spec.name.as_str());
        let mut twice = HashSet::new();
        if let Some(name) = sent.clone().find(|name| !twice.insert(*name)) {
            return Err(format!("`{name}` crosses twice"));
        }
        if let Some(name) = sent.clone().find(|name| !before.contains(name)) {
            return Err(format!(
                "`{name}` crosses, and nothing before the cut makes it"
            ));
        }
        let states = self.states.iter().map(|state| state.input.as_str());
        let mut there: HashSet<&str> = sent.chain(states).collect();
        for stage in tail {
            let missing = |name: &&String| !there.contains(name.as_str());
            if let Some(name) = stage.inputs.iter().find(missing) {
                return Err(format!("the tail reads `{name}`, which does not cross"));
            }
            there.extend(stage.outputs.iter().map(String::as_str));
        }
        let behind: HashSet<&str> = made(tail).collect();
        let mut replies = cut.replies.iter().map(|reply| reply.spec.name.as_str());
        if let Some(name) = replies.find(|name| !behind.contains(name)) {
            return Err(format!(
                "`{name}` comes back, and the tail does not make it"
            ));
        }
        Ok(())
    }

    fn validate_cut(&self, cut: &Cut) -> Result<(), String> {
        if cut.stage > self.stages.len() {
            return Err(format!("stage {} of {}", cut.stage, self.stages.len()));
        }
        if !(0.0..=1.0).contains(&cut.depth) {
            return Err(format!("depth {} is not within 0 and 1", cut.depth));
        }
        self.validate_values(cut)?;
        for crossing in &cut.crossing {
            let spec = &crossing.spec;
            if crossing.codecs.is_empty() {
                return Err(format!("`{}` has no codec", spec.name));
            }
            let mut names = BTreeSet::new();
            for codec in &crossing.codecs {
                check_codec(codec, spec)?;
                // A request names a codec by its id alone: what shares one must decode alike, and
                // that is so where names differ, by their quality.
                if !names.insert(codec.name()) {
                    return Err(format!("`{}` lists the codec {codec} twice", spec.name));
                }
            }
            check_axis(crossing.batch_axis, spec)?;
            check_reference(crossing)?;
        }
        for reply in &cut.replies {
            check_codec(&reply.codec, &reply.spec)?;
            check_axis(reply.batch_axis, &reply.spec)?;
        }
        Ok(())
    }
}

/// Refuses a name that could write to a terminal more than itself.
fn check_name(name: &str) -> Result<(), String> {
    if name.chars().any(char::is_control) {
        return Err(format!("the name {name:?} has a control character"));
    }
    Ok(())
}

fn check_codec(codec: &CodecSpec, spec: &TensorSpec) -> Result<(), String> {
    if !codec.accepts(spec.dtype) {
        return Err(format!(
            "codec {codec} does not take `{}` of {}; it takes {}",
            spec.name,
            spec.dtype,
            codec.dtype_names()
        ));
    }
    if let CodecSpec::Int8 { axis } = codec {
        check_axis(Some(*axis), spec)?;
    }
    if let Some(quality) = codec.bad_quality() {
        return Err(format!(
            "codec {codec} of `{}` has quality {quality}; expected 1 to 100",
            spec.name
        ));
    }
    let last = spec.shape.last().and_then(crate::Dim::fixed);
    if !codec.takes_shape(spec.shape.len(), last) {
        return Err(format!(
            "codec {codec} does not take `{spec}`; it takes {}, the last one fixed",
            codec.shape_text()
        ));
    }
    Ok(())
}

fn check_reference(crossing: &Crossing) -> Result<(), String> {
    let spec = &crossing.spec;
    let fits = crossing.reference.len() == spec.shape.len()
        && spec
            .shape
            .iter()
            .zip(&crossing.reference)
            .all(|(dim, &reference)| dim.fixed().is_none_or(|size| size == reference));
    let reference = crate::format_shape(&crossing.reference);
    if !fits {
        return Err(format!("`{spec}` has the reference {reference}"));
    }
    let sizes = crossing.reference.iter().filter(|&&size| size != 0);
    let bytes = sizes.fold(spec.dtype.size() as u64, |bytes, &size| {
        bytes.saturating_mul(size)
    });
    if bytes > MAX_REFERENCE_BYTES {
        return Err(format!(
            "`{spec}` has the reference {reference}, of {bytes} bytes; at most {MAX_REFERENCE_BYTES}"
        ));
    }
    Ok(())
}

fn check_axis(axis: Option<usize>, spec: &TensorSpec) -> Result<(), String> {
    match axis {
        Some(axis) if axis >= spec.shape.len() => Err(format!(
            "`{}` has rank {}, no axis {axis}",
            spec.name,
            spec.shape.len()
        )),
        _ => Ok(()),
    }
}

/// Refuses a path that could leave the bundle, on any operating system.
fn check_path(path: &str) -> Result<(), String> {
    let bad = path.is_empty()
        || path.contains(['\\', ':', '\0'])
        || path.split('/').any(|part| matches!(part, "" | "." | ".."));
    if bad {
        return Err(format!("`{path}` is not a plain path inside the bundle"));
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
