//! Trained models, cut.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use seamline_graph::infer::InputDomain;
use seamline_ort::{Runtime, SessionOptions, StageChain};
use seamline_partitioner::{
    ImagePreprocess, Model, ProbeInput, Prober, Source, SplitOptions, find_seams, split,
};
use seamline_plan::{Bundle, Dim, Side, Tensor};

/// Values by name.
pub(crate) type Values = BTreeMap<String, Tensor>;

/// A model of the zoo, ready to be cut.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) model: Model,
    source: Source,
}

impl Subject {
    pub(crate) fn open(
        name: &'static str,
        runtime: &Runtime,
        image: Option<ImagePreprocess>,
    ) -> Subject {
        let source = Source {
            model: seamline_tests::zoo(name),
            shapes: seamline_tests::sizes(name),
            image,
        };
        let mut model = source.open().unwrap();
        model.learn(runtime, 1).unwrap();
        Subject {
            name,
            model,
            source,
        }
    }

    /// The listed seam nearest to `depth`, and its own depth.
    pub(crate) fn seam_at(&self, depth: f64) -> (String, f64) {
        let seams = find_seams(&self.model, &[]).unwrap().listed;
        let distance = |d: f64| (d - depth).abs();
        let nearest = seams
            .iter()
            .min_by(|a, b| distance(a.depth()).total_cmp(&distance(b.depth())));
        let nearest = nearest.expect("the model has seams");
        (nearest.id.clone(), nearest.depth())
    }

    /// The listed seam of the fewest bytes between 40 % and 60 % of the work, and its depth.
    pub(crate) fn cheapest_mid_seam(&self) -> (String, f64) {
        let seams = find_seams(&self.model, &[]).unwrap().listed;
        let middle = seams
            .iter()
            .filter(|seam| (0.4..=0.6).contains(&seam.depth()));
        let cheapest = middle
            .min_by_key(|seam| seam.bytes_f32)
            .expect("a seam in the middle");
        (cheapest.id.clone(), cheapest.depth())
    }

    /// Cuts at `at`, or at the inputs, into a bundle.
    pub(crate) fn split(&self, runtime: &Runtime, out: &Path, at: Option<&str>) -> PathBuf {
        let options = SplitOptions {
            at: at.map(str::to_owned).into_iter().collect(),
            cloud_head: at.is_none(),
            ..SplitOptions::default()
        };
        self.split_with(runtime, out, &options)
    }

    /// Cuts as `options` say.
    pub(crate) fn split_with(
        &self,
        runtime: &Runtime,
        out: &Path,
        options: &SplitOptions,
    ) -> PathBuf {
        std::fs::create_dir_all(out.parent().unwrap()).unwrap();
        split(&self.model, runtime, out, options, &self.source).unwrap();
        out.to_owned()
    }

    /// Random inputs, one row.
    pub(crate) fn inputs(&self, seed: u64) -> Values {
        Prober::new(seed)
            .draw(&self.model.probe_inputs(None).unwrap())
            .unwrap()
    }
}

/// Random inputs of one row, drawn from the contract alone; the same in every process.
pub(crate) fn random_inputs(bundle: &Path) -> Values {
    let (manifest, _) = Bundle::read_manifest(bundle).unwrap();
    let inputs = manifest.inputs.iter().map(|spec| {
        // Free dimensions behind the first are a picture's.
        let size = |(axis, dim): (usize, &Dim)| match dim.fixed() {
            Some(size) => usize::try_from(size).unwrap(),
            None if axis == 0 => 1,
            None => 224,
        };
        ProbeInput {
            name: spec.name.clone(),
            dtype: spec.dtype,
            shape: spec.shape.iter().enumerate().map(size).collect(),
            domain: if spec.dtype.is_float() {
                InputDomain::Normal
            } else {
                InputDomain::Bytes
            },
        }
    });
    Prober::new(1).draw(&inputs.collect::<Vec<_>>()).unwrap()
}

/// The default cut's two halves in this process.
pub(crate) struct Halves {
    head: StageChain,
    tail: StageChain,
    stage: usize,
    stages: usize,
    crossing: Vec<String>,
}

impl Halves {
    pub(crate) fn load(runtime: &Runtime, bundle: &Path) -> Halves {
        let open = |side| Bundle::open(bundle, side).unwrap();
        let (edge, cloud) = (open(Side::Edge), open(Side::Cloud));
        let options = SessionOptions::default();
        let manifest = cloud.manifest();
        let (_, cut) = manifest.cut(&manifest.default_cut).unwrap();
        Halves {
            head: StageChain::load(runtime, &edge, &options).unwrap(),
            tail: StageChain::load(runtime, &cloud, &options).unwrap(),
            stage: cut.stage,
            stages: manifest.stages.len(),
            crossing: cut
                .crossing
                .iter()
                .map(|crossing| crossing.spec.name.clone())
                .collect(),
        }
    }

    /// What crosses, of `inputs`.
    pub(crate) fn head(&mut self, mut inputs: Values) -> Values {
        self.head.run(0..self.stage, &mut inputs).unwrap();
        inputs
    }

    /// Finishes what [`Halves::head`] gave.
    pub(crate) fn tail(&mut self, mut values: Values) -> Values {
        self.tail.run(self.stage..self.stages, &mut values).unwrap();
        values
    }

    /// What crosses, repeated along each value's first axis until there are `rows`.
    pub(crate) fn repeat(&self, values: &Values, rows: usize) -> Values {
        let repeat = |name: &String| {
            let tensor = &values[name];
            let mut shape = tensor.shape().to_vec();
            shape[0] *= rows;
            let tensor = Tensor::new(tensor.dtype(), shape, tensor.bytes().repeat(rows).into());
            (name.clone(), tensor.unwrap().aligned())
        };
        self.crossing.iter().map(repeat).collect()
    }
}
