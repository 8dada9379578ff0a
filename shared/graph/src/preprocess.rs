//! Preprocessing of pictures as nodes in front of a model, so that a picture enters as bytes and a
//! cut may lie before, inside or behind the preprocessing.

use seamline_plan::{DType, Dim};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::builder::{self, node, tensor, value_info};
use crate::graph::{Graph, Value};
use crate::proto::{AttributeProto, NodeProto, TensorProto};
use crate::read::ReadError;

/// What every node and value added here begins with.
const PREFIX: &str = "seamline/pre/";

/// The oldest opset whose operators (`Resize` by sizes, half-pixel) preprocessing can use.
pub const MIN_PREPROCESS_OPSET: i64 = 11;

/// The first opset whose `Resize` has `antialias`.
const ANTIALIAS_OPSET: i64 = 18;

/// The first opset whose `Resize` may leave out `roi` and `scales`.
const OPTIONAL_SCALES_OPSET: i64 = 13;

/// How a picture is brought to size; bilinear, half-pixel centres.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resize {
    /// Not at all.
    #[default]
    None,
    /// To this size, whatever the aspect.
    Exact {
        /// Rows.
        height: u32,
        /// Columns.
        width: u32,
    },
    /// The shorter side to this many pixels, the other in proportion, rounded.
    ShortSide(u32),
}

/// The order of channels that the model expects. Pictures enter as RGB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChannelOrder {
    /// Red first.
    #[default]
    Rgb,
    /// Blue first, as OpenCV reads pictures.
    Bgr,
}

/// From a `u8` picture `[N, H, W, 3]` to a float input `[N, 3, H, W]`: resize, crop, order the
/// channels, then `(pixel * scale - mean) / std`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImagePreprocess {
    /// The model's float input that the picture replaces.
    pub input: String,
    /// The name of the new input. Default `image`.
    pub picture: String,
    /// How the picture is brought to size. Default: not at all.
    pub resize: Resize,
    /// Smooth while shrinking, as Pillow and torchvision do; needs opset 18. Default: no.
    pub antialias: bool,
    /// Rows and columns cut from the middle after resizing. Default: all.
    pub center_crop: Option<(u32, u32)>,
    /// The order of channels that the model expects. Default RGB.
    pub order: ChannelOrder,
    /// Factor of a pixel's value. Default 1/255.
    pub scale: f32,
    /// Subtracted from the scaled value, in the model's order of channels. Default 0.
    pub mean: [f32; 3],
    /// Divides the result, in the model's order of channels. Default 1.
    pub std: [f32; 3],
}

impl Default for ImagePreprocess {
    fn default() -> ImagePreprocess {
        ImagePreprocess {
            input: String::new(),
            picture: "image".into(),
            resize: Resize::None,
            antialias: false,
            center_crop: None,
            order: ChannelOrder::Rgb,
            scale: 1.0 / 255.0,
            mean: [0.0; 3],
            std: [1.0; 3],
        }
    }
}

/// Preprocessing that does not fit the model.
#[derive(Debug, Error)]
pub enum PreprocessError {
    /// No such input.
    #[error("the model has no input `{input}`; it has {inputs:?}")]
    NoInput {
        /// What was asked for.
        input: String,
        /// What there is.
        inputs: Vec<String>,
    },
    /// An input that no picture fits.
    #[error(
        "input `{input}` is {got}; a picture can replace a float input [N, 3, H, W] (f32 or f16)"
    )]
    NotPicture {
        /// The input.
        input: String,
        /// Its dtype and shape.
        got: String,
    },
    /// The picture's name is in use.
    #[error("the model has a value `{name}` already; choose another name for the picture")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// Operators too old.
    #[error(
        "{what} needs opset {needed}; the model has {got}: convert it with `onnx.version_converter.convert_version(model, {needed})`, or preprocess outside the model"
    )]
    Opset {
        /// What needs it.
        what: &'static str,
        /// The opset needed.
        needed: i64,
        /// The model's.
        got: i64,
    },
    /// Sizes that do not go together.
    #[error("{0}")]
    Size(String),
    /// A factor that is not a number, or a zero divisor.
    #[error("`{field}` is {value}; expected a finite number{}", if *field == "std" { " other than 0" } else { "" })]
    Factor {
        /// The setting.
        field: &'static str,
        /// Its value.
        value: f32,
    },
    /// The result is not a valid model.
    #[error("the model with preprocessing is not valid: {0}")]
    Invalid(#[from] ReadError),
}

impl ImagePreprocess {
    /// The model with this preprocessing in front. The float input keeps its name as an inner
    /// value.
    ///
    /// # Errors
    /// [`PreprocessError`].
    pub fn apply(&self, graph: &Graph) -> Result<Graph, PreprocessError> {
        let position = graph
            .inputs
            .iter()
            .position(|&id| graph.value(id).name == self.input);
        let position = position.ok_or_else(|| PreprocessError::NoInput {
            input: self.input.clone(),
            inputs: graph
                .inputs
                .iter()
                .map(|&id| graph.value(id).name.clone())
                .collect(),
        })?;
        let value = graph.value(graph.inputs[position]);
        let (dtype, [batch, height, width]) = self.check_input(value)?;
        self.check_settings(graph.opset(), &height, &width)?;
        if graph.find(&self.picture).is_some() {
            return Err(PreprocessError::NameTaken {
                name: self.picture.clone(),
            });
        }
        let is_sized = self.resize == Resize::None && self.center_crop.is_none();
        let side = |dim: Dim, letter: &str| match dim {
            Dim::Unknown => Dim::Sym(format!("{}_{letter}", self.picture)),
            _ if !is_sized => Dim::Sym(format!("{}_{letter}", self.picture)),
            dim => dim,
        };
        let shape = [
            batch,
            side(height, "height"),
            side(width, "width"),
            Dim::Fixed(3),
        ];

        let mut steps = Steps::new(&self.picture);
        self.add_steps(&mut steps, dtype, graph.opset());
        steps.finish(&self.input);

        let mut model = graph.to_model_proto();
        if let Some(proto) = &mut model.graph {
            // Inputs come first and in order, so the position is the same in the message.
            let old = std::mem::replace(
                &mut proto.input[position],
                value_info(&self.picture, DType::U8, Some(&shape)),
            );
            proto.value_info.push(old);
            proto.node.splice(0..0, steps.nodes);
            proto.initializer.extend(steps.weights);
        }
        let mut result = Graph::from_model_proto(model)?;
        result.source.clone_from(&graph.source);
        Ok(result)
    }

    fn check_input(&self, value: &Value) -> Result<(DType, [Dim; 3]), PreprocessError> {
        let fits = match (value.dtype, value.shape.as_deref()) {
            (Some(dtype @ (DType::F32 | DType::F16)), Some([batch, channels, height, width]))
                if channels.fixed().is_none_or(|channels| channels == 3) =>
            {
                Some((dtype, [batch.clone(), height.clone(), width.clone()]))
            }
            _ => None,
        };
        fits.ok_or_else(|| {
            let dtype = value
                .dtype
                .map_or("of unknown type".into(), |dtype| dtype.to_string());
            let shape = value
                .shape
                .as_deref()
                .map_or("of unknown rank".into(), seamline_plan::format_shape);
            PreprocessError::NotPicture {
                input: self.input.clone(),
                got: format!("{dtype} {shape}"),
            }
        })
    }

    fn check_settings(&self, opset: i64, height: &Dim, width: &Dim) -> Result<(), PreprocessError> {
        let needs = |what, needed| {
            (opset >= needed)
                .then_some(())
                .ok_or(PreprocessError::Opset {
                    what,
                    needed,
                    got: opset,
                })
        };
        needs("preprocessing", MIN_PREPROCESS_OPSET)?;
        if self.antialias {
            needs("antialiased resizing", ANTIALIAS_OPSET)?;
        }
        let factors = [
            ("scale", [self.scale; 3]),
            ("mean", self.mean),
            ("std", self.std),
        ];
        for (field, values) in factors {
            for value in values {
                if !value.is_finite() || field == "std" && value == 0.0 {
                    return Err(PreprocessError::Factor { field, value });
                }
            }
        }
        let resized = match self.resize {
            Resize::Exact { height, width } => Some((height, width)),
            Resize::ShortSide(side) => Some((side, side)),
            Resize::None => None,
        };
        let is_empty = |size: Option<(u32, u32)>| size.is_some_and(|(h, w)| h == 0 || w == 0);
        if is_empty(resized) || is_empty(self.center_crop) {
            return Err(PreprocessError::Size(
                "a size of 0 leaves no picture".into(),
            ));
        }
        if let (Some((crop_h, crop_w)), Some((h, w))) = (self.center_crop, resized)
            && (crop_h > h || crop_w > w)
        {
            return Err(PreprocessError::Size(format!(
                "the crop of {crop_h} x {crop_w} is larger than the resized picture, which may be {h} x {w}"
            )));
        }
        self.check_result(height, width)
    }

    /// What comes out must be what the model takes, where that is fixed.
    fn check_result(&self, height: &Dim, width: &Dim) -> Result<(), PreprocessError> {
        let result = match (self.center_crop, self.resize) {
            (Some(crop), _) => Some(crop),
            (None, Resize::Exact { height, width }) => Some((height, width)),
            (None, Resize::ShortSide(_)) => None,
            (None, Resize::None) => return Ok(()),
        };
        let fits = match (result, height.fixed(), width.fixed()) {
            (_, None, None) => true,
            (Some((h, w)), height, width) => {
                height.is_none_or(|height| height == u64::from(h))
                    && width.is_none_or(|width| width == u64::from(w))
            }
            (None, ..) => false,
        };
        if fits {
            return Ok(());
        }
        let got = result.map_or("pictures of any aspect".into(), |(h, w)| {
            format!("{h} x {w}")
        });
        Err(PreprocessError::Size(format!(
            "input `{}` takes pictures of {height} x {width} and the preprocessing gives {got}; set the crop or the size to what the input takes",
            self.input
        )))
    }

    fn add_steps(&self, steps: &mut Steps, dtype: DType, opset: i64) {
        // In bytes, a quarter of the traffic of doing it in floats.
        steps.push(
            "Transpose",
            "nchw",
            &[],
            vec![builder::ints("perm", &[0, 3, 1, 2])],
        );
        steps.cast("float", DType::F32);
        if self.resize != Resize::None {
            self.add_resize(steps, opset);
        }
        if let Some((height, width)) = self.center_crop {
            let size = steps.i64s("crop_size", &[height.into(), width.into()]);
            let two = steps.i64s("two", &[2]);
            let sides = steps.sides();
            let spare = steps.add("Sub", "spare", &[&sides, &size], vec![]);
            let starts = steps.add("Div", "crop_starts", &[&spare, &two], vec![]);
            let ends = steps.add("Add", "crop_ends", &[&starts, &size], vec![]);
            let axes = steps.i64s("crop_axes", &[2, 3]);
            steps.push("Slice", "cropped", &[&starts, &ends, &axes], vec![]);
        }
        if self.order == ChannelOrder::Bgr {
            let order = steps.i64s("channel_order", &[2, 1, 0]);
            steps.push("Gather", "bgr", &[&order], vec![builder::int("axis", 1)]);
        }
        let per_channel = |of: &dyn Fn(usize) -> f32| [of(0), of(1), of(2)];
        let factor = per_channel(&|channel| self.scale / self.std[channel]);
        let offset = per_channel(&|channel| -self.mean[channel] / self.std[channel]);
        let factor = steps.f32s("factor", &[1, 3, 1, 1], &factor);
        steps.push("Mul", "scaled", &[&factor], vec![]);
        if offset.iter().any(|&offset| offset != 0.0) {
            let offset = steps.f32s("offset", &[1, 3, 1, 1], &offset);
            steps.push("Add", "normalized", &[&offset], vec![]);
        }
        if dtype != DType::F32 {
            steps.cast("narrowed", dtype);
        }
    }

    fn add_resize(&self, steps: &mut Steps, opset: i64) {
        let size = match self.resize {
            Resize::None => return,
            Resize::Exact { height, width } => steps.i64s("size", &[height.into(), width.into()]),
            Resize::ShortSide(side) => {
                let sides = steps.sides();
                let float = || vec![builder::int("to", DType::F32.code().into())];
                let sides = steps.add("Cast", "sides_float", &[&sides], float());
                let short = steps.add(
                    "ReduceMin",
                    "short_side",
                    &[&sides],
                    vec![builder::int("keepdims", 1)],
                );
                #[allow(clippy::cast_precision_loss, reason = "pixels, far below 2^24")]
                let wanted = steps.f32s("short_side_wanted", &[1], &[side as f32]);
                let ratio = steps.add("Div", "ratio", &[&wanted, &short], vec![]);
                let exact = steps.add("Mul", "sides_exact", &[&sides, &ratio], vec![]);
                let rounded = steps.add("Round", "sides_rounded", &[&exact], vec![]);
                let whole = vec![builder::int("to", DType::I64.code().into())];
                steps.add("Cast", "size", &[&rounded], whole)
            }
        };
        let batch_and_channels = steps.dims("batch_and_channels", 0, 2);
        let sizes = vec![builder::int("axis", 0)];
        let sizes = steps.add("Concat", "sizes", &[&batch_and_channels, &size], sizes);
        let mut attributes = vec![
            builder::string("mode", "linear"),
            builder::string("coordinate_transformation_mode", "half_pixel"),
        ];
        if self.antialias {
            attributes.push(builder::int("antialias", 1));
        }
        let unused = if opset < OPTIONAL_SCALES_OPSET {
            steps.f32s("no_scales", &[0], &[])
        } else {
            String::new()
        };
        steps.push("Resize", "resized", &[&unused, &unused, &sizes], attributes);
    }
}

/// Nodes in a row: each step works on the picture that the step before left.
struct Steps {
    nodes: Vec<NodeProto>,
    weights: Vec<TensorProto>,
    picture: String,
}

impl Steps {
    fn new(picture: &str) -> Steps {
        Steps {
            nodes: Vec::new(),
            weights: Vec::new(),
            picture: picture.to_owned(),
        }
    }

    /// Adds a node and returns its output.
    fn add(
        &mut self,
        op: &str,
        name: &str,
        inputs: &[&str],
        attributes: Vec<AttributeProto>,
    ) -> String {
        let output = format!("{PREFIX}{name}");
        self.nodes.push(node(op, inputs, &[&output], attributes));
        output
    }

    /// Adds a node that takes the picture and `others`, and leaves the picture.
    fn push(&mut self, op: &str, name: &str, others: &[&str], attributes: Vec<AttributeProto>) {
        let picture = self.picture.clone();
        let inputs: Vec<&str> = std::iter::once(picture.as_str())
            .chain(others.iter().copied())
            .collect();
        self.picture = self.add(op, name, &inputs, attributes);
    }

    fn cast(&mut self, name: &str, dtype: DType) {
        self.push(
            "Cast",
            name,
            &[],
            vec![builder::int("to", dtype.code().into())],
        );
    }

    /// Rows and columns of the picture as it is now.
    fn sides(&mut self) -> String {
        let name = format!("sides_{}", self.nodes.len());
        self.dims(&name, 2, 4)
    }

    /// Dimensions `start..end` of the picture as it is now.
    fn dims(&mut self, name: &str, start: i64, end: i64) -> String {
        let picture = self.picture.clone();
        let shape = self.add("Shape", &format!("{name}/shape"), &[&picture], vec![]);
        let start = self.i64s(&format!("{name}/start"), &[start]);
        let end = self.i64s(&format!("{name}/end"), &[end]);
        self.add("Slice", name, &[&shape, &start, &end], vec![])
    }

    fn i64s(&mut self, name: &str, values: &[i64]) -> String {
        let raw = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let length = [i64::try_from(values.len()).unwrap_or(i64::MAX)];
        self.weight(name, DType::I64, &length, raw)
    }

    fn f32s(&mut self, name: &str, dims: &[i64], values: &[f32]) -> String {
        let raw = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        self.weight(name, DType::F32, dims, raw)
    }

    fn weight(&mut self, name: &str, dtype: DType, dims: &[i64], raw: Vec<u8>) -> String {
        let name = format!("{PREFIX}{name}");
        self.weights.push(tensor(&name, dtype, dims, raw));
        name
    }

    /// Gives the picture its final name.
    fn finish(&mut self, name: &str) {
        if let Some(output) = self
            .nodes
            .last_mut()
            .and_then(|node| node.output.first_mut())
        {
            name.clone_into(output);
        }
    }
}
