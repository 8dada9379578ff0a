//! `seamline-edge run`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use half::{bf16, f16};
use ndarray_npy::WriteNpyExt;
use seamline_edge::{Answer, Client, Timings};
use seamline_plan::{DType, Tensor, format_shape};

use super::{Connection, Learning, read_requests};

#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    connection: Connection,
    /// An input: .npy, .png, .jpg or .json. For a model of several inputs NAME=FILE, once each;
    /// for a model of one, each file is a request (a recurrent net begins anew with each).
    #[arg(long = "input", value_name = "[NAME=]FILE", required = true)]
    inputs: Vec<String>,
    /// Write each output as .npy into this folder; half floats as f32.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    learning: Learning,
}

impl Run {
    pub(crate) fn run(self, json: bool) -> anyhow::Result<ExitCode> {
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        tokio.block_on(async {
            let client = self.connection.client().await?;
            let result = self.ask(&client, json).await;
            // Also after a failure: the service need not wait for a silent device.
            client.close().await;
            result
        })
    }

    async fn ask(&self, client: &Client, json: bool) -> anyhow::Result<ExitCode> {
        let requests = read_requests(client.manifest(), &self.inputs)?;
        self.learning.check(client)?;
        let mut documents = Vec::new();
        for (index, request) in requests.into_iter().enumerate() {
            let answer = client.infer(request.values).await?;
            if let Some(folder) = &self.output {
                write_outputs(folder, index, &answer)?;
            }
            if json {
                documents.push(document(&request.source, &answer));
            } else {
                print_answer(&request.source, &answer);
            }
        }
        self.learning.keep(client, &self.connection.bundle)?;
        if json {
            seamline_plan::outln!("{}", serde_json::json!({ "answers": documents }));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// At most this many elements of an output are printed.
const SHOWN: usize = 8;

fn print_answer(source: &str, answer: &Answer) {
    seamline_plan::outln!("{source}");
    for (name, tensor) in answer.outputs() {
        let more = if tensor.len() > SHOWN { ", …" } else { "" };
        seamline_plan::outln!(
            "  {name}: {} {} = [{}{more}]",
            tensor.dtype(),
            format_shape(tensor.shape()),
            shown(tensor, SHOWN).join(", ")
        );
    }
    seamline_plan::outln!("  {}", describe(answer));
}

/// `cut s12, codec f16, 12300 bytes sent, batch of 1; 4.2 ms: edge 1.1, …`.
fn describe(answer: &Answer) -> String {
    let steps: Vec<String> = steps(&answer.timings)
        .iter()
        .map(|(name, ms)| format!("{name} {ms:.2}"))
        .collect();
    let total = answer.timings.total.as_secs_f64() * 1e3;
    format!(
        "cut {}, codec {}, {} bytes sent, batch of {}; {total:.2} ms: {}",
        answer.cut,
        answer.codec.as_deref().unwrap_or("none"),
        answer.bytes_sent,
        answer.batch_size,
        steps.join(", ")
    )
}

/// Each step's time in milliseconds.
pub(crate) fn steps(timings: &Timings) -> [(&'static str, f64); 6] {
    let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    [
        ("edge", ms(timings.edge)),
        ("encode", ms(timings.encode)),
        ("wire", ms(timings.wire)),
        ("queue", ms(timings.queue)),
        ("cloud", ms(timings.cloud)),
        ("decode", ms(timings.decode)),
    ]
}

fn document(source: &str, answer: &Answer) -> serde_json::Value {
    let outputs: Vec<_> = answer
        .outputs()
        .iter()
        .map(|(name, tensor)| {
            serde_json::json!({
                "name": name,
                "dtype": tensor.dtype(),
                "shape": tensor.shape(),
                "data": data(tensor),
            })
        })
        .collect();
    let steps: serde_json::Map<String, serde_json::Value> = steps(&answer.timings)
        .into_iter()
        .map(|(name, ms)| (name.to_owned(), ms.into()))
        .collect();
    serde_json::json!({
        "input": source,
        "outputs": outputs,
        "cut": answer.cut,
        "codec": answer.codec,
        "bytes_sent": answer.bytes_sent,
        "bytes_received": answer.bytes_received,
        "batch_size": answer.batch_size,
        "total_ms": answer.timings.total.as_secs_f64() * 1e3,
        "steps_ms": steps,
    })
}

macro_rules! with_elements {
    ($tensor:expr, $elements:ident => $body:expr, $otherwise:expr) => {{
        macro_rules! typed {
            ($element:ty) => {
                match $tensor.as_slice::<$element>() {
                    Ok($elements) => $body,
                    Err(_) => $otherwise,
                }
            };
        }
        match $tensor.dtype() {
            DType::F32 => typed!(f32),
            DType::F64 => typed!(f64),
            DType::I8 => typed!(i8),
            DType::I16 => typed!(i16),
            DType::I32 => typed!(i32),
            DType::I64 => typed!(i64),
            DType::U8 | DType::Bool => typed!(u8),
            DType::U16 => typed!(u16),
            DType::U32 => typed!(u32),
            DType::U64 => typed!(u64),
            DType::F16 | DType::BF16 => $otherwise,
        }
    }};
}

/// Half floats as f32, which holds each exactly; every other tensor as it is.
fn widened(tensor: &Tensor) -> Tensor {
    let wide: Option<Vec<f32>> = match tensor.dtype() {
        DType::F16 => tensor
            .as_slice::<f16>()
            .ok()
            .map(|e| e.iter().map(|e| e.to_f32()).collect()),
        DType::BF16 => tensor
            .as_slice::<bf16>()
            .ok()
            .map(|e| e.iter().map(|e| e.to_f32()).collect()),
        _ => None,
    };
    wide.and_then(|wide| Tensor::from_vec(tensor.shape().to_vec(), wide).ok())
        .unwrap_or_else(|| tensor.clone())
}

/// Every element; integers exactly, NaN and infinities as null.
fn data(tensor: &Tensor) -> Vec<serde_json::Value> {
    let tensor = widened(tensor);
    with_elements!(tensor, e => e.iter().map(|&e| e.into()).collect(), Vec::new())
}

/// The first `most` elements, for people.
fn shown(tensor: &Tensor, most: usize) -> Vec<String> {
    let tensor = widened(tensor);
    let is_float = tensor.dtype().is_float();
    let text = |element: &dyn std::fmt::Display| {
        if is_float {
            format!("{element:.4}")
        } else {
            element.to_string()
        }
    };
    with_elements!(tensor, e => e.iter().take(most).map(|e| text(e)).collect(), Vec::new())
}

fn write_outputs(folder: &Path, index: usize, answer: &Answer) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    for (name, tensor) in answer.outputs() {
        // Names of values may hold slashes and colons.
        let plain: String = name
            .chars()
            .map(|c| {
                if c.is_alphanumeric() || matches!(c, '.' | '_' | '-') {
                    c
                } else {
                    '_'
                }
            })
            .collect();
        let path = folder.join(format!("{index}-{plain}.npy"));
        let file = fs::File::create(&path).with_context(|| path.display().to_string())?;
        let tensor = widened(tensor);
        let written = with_elements!(
            tensor,
            e => ndarray::ArrayViewD::from_shape(tensor.shape(), e)?.write_npy(file),
            anyhow::bail!("output `{name}` is {}; npy has no such type", tensor.dtype())
        );
        written.with_context(|| path.display().to_string())?;
    }
    Ok(())
}
