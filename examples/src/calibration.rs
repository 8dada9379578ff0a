//! Calibration folders for models of the zoo, as `seamline plan --calibration` takes them: made from
//! packages of public registries, the same on every machine.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use fastrand::Rng;
use image::{RgbImage, imageops};
use seamline_assets::{FONT, PAGE_PHOTOGRAPH, PHOTOGRAPHS, Store, WORD_PIECES};
use seamline_partitioner::plan::{LABELS_TEXT, npy};
use seamline_partitioner::{ChannelOrder, ImagePreprocess, Resize};
use seamline_plan::Tensor;

use crate::text::{self, Page};

/// Draws crops and signals.
const SEED: u64 = 4;

const LICENCE: &str = include_str!("../../LICENSE-APACHE");

/// Writes `count` requests for `model` of the zoo into `folder`, which is made.
///
/// | model | requests | labels |
/// |---|---|---|
/// | `orientation` | pages of text in all rotations | quarter turns |
/// | `ocr-rec`, `ocr-cls` | lines of text | the text; whether upside down |
/// | `ocr-det`, `layout` | pages of text, one a photograph | |
/// | `vit-s` | parts of photographs | |
/// | `minilm-…` | sentences as tokens | |
/// | `vad-…` | tones in noise, some silent | |
///
/// Pictures need the preprocessing of [`preprocessing`].
///
/// # Errors
/// A model without data here, a package that cannot be fetched, a folder that cannot be written.
pub fn calibration(model: &str, folder: &Path, count: usize) -> anyhow::Result<()> {
    let store = Store::from_env();
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    match model {
        "orientation" => rotated_pages(&store, folder, count),
        "ocr-rec" => lines(&store, folder, count),
        "ocr-cls" => turned_lines(&store, folder, count),
        "ocr-det" | "layout" => pages(&store, folder, count),
        "vit-s" => photographs(&store, folder, count),
        "minilm-l3" => sentences(&store, folder, count, &["input_ids", "attention_mask"]),
        "minilm-l6-int8" => {
            let inputs = ["input_ids", "attention_mask", "token_type_ids"];
            sentences(&store, folder, count, &inputs)
        }
        "vad-seq" => sounds(folder, count, 4),
        "vad-if" => sounds(folder, count, 1),
        _ => bail!("there is no calibration data for `{model}` here; make a folder of your own"),
    }
}

/// How pictures are brought to the input of `model`; none for models of other inputs. As text for
/// `--image`: [`image_argument`].
pub fn preprocessing(model: &str) -> Option<ImagePreprocess> {
    let (input, resize) = match model {
        "orientation" => ("x", Resize::ShortSide(256)),
        "ocr-rec" => (
            "x",
            Resize::Exact {
                height: 48,
                width: 320,
            },
        ),
        "ocr-cls" => (
            "x",
            Resize::Exact {
                height: 48,
                width: 192,
            },
        ),
        "ocr-det" => (
            "x",
            Resize::Exact {
                height: 256,
                width: 256,
            },
        ),
        "layout" => (
            "image",
            Resize::Exact {
                height: 800,
                width: 608,
            },
        ),
        "vit-s" => (
            "input_image",
            Resize::Exact {
                height: 224,
                width: 224,
            },
        ),
        _ => return None,
    };
    let is_line = matches!(model, "ocr-rec" | "ocr-cls");
    Some(ImagePreprocess {
        input: input.into(),
        picture: "picture".into(),
        resize,
        center_crop: (model == "orientation").then_some((224, 224)),
        order: if is_line {
            ChannelOrder::Bgr
        } else {
            ChannelOrder::Rgb
        },
        mean: if is_line {
            [0.5; 3]
        } else {
            [0.485, 0.456, 0.406]
        },
        std: if is_line {
            [0.5; 3]
        } else {
            [0.229, 0.224, 0.225]
        },
        ..ImagePreprocess::default()
    })
}

/// [`preprocessing`] as `--image` takes it.
pub fn image_argument(model: &str) -> Option<String> {
    let image = preprocessing(model)?;
    let mut text = format!("input={},name={}", image.input, image.picture);
    // Writing to a string does not fail.
    let _ = match image.resize {
        Resize::ShortSide(short) => write!(text, ",short={short}"),
        Resize::Exact { height, width } => write!(text, ",size={height}x{width}"),
        Resize::None => Ok(()),
    };
    if let Some((height, width)) = image.center_crop {
        let _ = write!(text, ",crop={height}x{width}");
    }
    if image.order == ChannelOrder::Bgr {
        text.push_str(",order=bgr");
    }
    let triple = |[a, b, c]: [f32; 3]| format!("{a}:{b}:{c}");
    let _ = write!(
        text,
        ",mean={},std={}",
        triple(image.mean),
        triple(image.std)
    );
    Some(text)
}

fn upright_pages(store: &Store, count: usize) -> anyhow::Result<Vec<RgbImage>> {
    let mut upright = vec![image::open(store.get(&PAGE_PHOTOGRAPH)?)?.into_rgb8()];
    let font = fs::read(store.get(&FONT)?)?;
    upright.extend(text::render(font, LICENCE, count.saturating_sub(1))?);
    upright.truncate(count);
    Ok(upright)
}

fn rotated_pages(store: &Store, folder: &Path, count: usize) -> anyhow::Result<()> {
    let pages = text::rotations(&upright_pages(store, count.div_ceil(4))?);
    let labelled = |Page {
                        picture,
                        quarter_turns,
                    }| (picture, quarter_turns.to_string());
    save(folder, pages.into_iter().take(count).map(labelled))
}

fn pages(store: &Store, folder: &Path, count: usize) -> anyhow::Result<()> {
    let pages = upright_pages(store, count)?;
    save(folder, pages.into_iter().map(|page| (page, String::new())))
}

/// Words between the lines' beginnings.
const STEP: usize = 7;

fn lines(store: &Store, folder: &Path, count: usize) -> anyhow::Result<()> {
    let font = fs::read(store.get(&FONT)?)?;
    let lines: anyhow::Result<Vec<_>> = (0..count)
        .map(|index| text::line(&font, LICENCE, index * STEP, 320))
        .collect();
    save(folder, lines?)
}

fn turned_lines(store: &Store, folder: &Path, count: usize) -> anyhow::Result<()> {
    let font = fs::read(store.get(&FONT)?)?;
    let line = |index: usize| {
        let (picture, _) = text::line(&font, LICENCE, index * STEP, 192)?;
        Ok(match index % 2 {
            0 => (picture, "0".to_owned()),
            _ => (imageops::rotate180(&picture), "1".to_owned()),
        })
    };
    save(
        folder,
        (0..count).map(line).collect::<anyhow::Result<Vec<_>>>()?,
    )
}

/// Squares of photographs, at most 256 pixels a side, some mirrored.
fn photographs(store: &Store, folder: &Path, count: usize) -> anyhow::Result<()> {
    const SIDE: u32 = 256;
    let mut random = Rng::with_seed(SEED);
    let open = |pin| anyhow::Ok(image::open(store.get(pin)?)?.into_rgb8());
    let photographs: Vec<RgbImage> = PHOTOGRAPHS.iter().map(open).collect::<Result<_, _>>()?;
    let crops = (0..count).map(|index| {
        let photograph = &photographs[index % photographs.len()];
        let (width, height) = photograph.dimensions();
        let most = width.min(height);
        let side = random.u32(most * 3 / 5..=most);
        let (x, y) = (random.u32(0..=width - side), random.u32(0..=height - side));
        let crop = imageops::crop_imm(photograph, x, y, side, side).to_image();
        let crop = imageops::resize(&crop, SIDE, SIDE, imageops::FilterType::Triangle);
        let crop = if random.bool() {
            imageops::flip_horizontal(&crop)
        } else {
            crop
        };
        (crop, String::new())
    });
    save(folder, crops)
}

/// Writes pictures, and their labels where they have any.
fn save(
    folder: &Path,
    pictures: impl IntoIterator<Item = (RgbImage, String)>,
) -> anyhow::Result<()> {
    let mut labels = String::new();
    for (index, (picture, label)) in pictures.into_iter().enumerate() {
        let name = format!("{index:03}.png");
        picture.save(folder.join(&name))?;
        if !label.is_empty() {
            writeln!(labels, "{name}\t{label}")?;
        }
    }
    if !labels.is_empty() {
        fs::write(folder.join(LABELS_TEXT), labels)?;
    }
    Ok(())
}

/// Sentences of about twenty words, a sub-folder each.
fn sentences(store: &Store, folder: &Path, count: usize, inputs: &[&str]) -> anyhow::Result<()> {
    const WORDS: usize = 20;
    let vocabulary = fs::read_to_string(store.get(&WORD_PIECES)?)?;
    let pieces = crate::word_pieces::WordPieces::new(&vocabulary);
    let words: Vec<&str> = LICENCE.split_whitespace().collect();
    for index in 0..count {
        let own = words
            .iter()
            .cycle()
            .skip(index * WORDS)
            .take(WORDS - index % 5);
        let sentence = own.copied().collect::<Vec<_>>().join(" ");
        let ids = pieces
            .encode(&sentence)
            .context("the vocabulary lacks [CLS], [SEP] or [UNK]")?;
        let request = folder.join(format!("{index:03}"));
        fs::create_dir_all(&request)?;
        for input in inputs {
            let values = match *input {
                "input_ids" => ids.clone(),
                "attention_mask" => vec![1; ids.len()],
                _ => vec![0; ids.len()],
            };
            let tensor = Tensor::from_vec(vec![1, ids.len()], values)?;
            fs::write(request.join(format!("{input}.npy")), npy::encode(&tensor))?;
        }
    }
    Ok(())
}

/// `frames` of 576 samples at 16 kHz: a tone with overtones that swells in faint noise, every fourth
/// time noise alone. The state is left out: it is zeros when a session begins.
fn sounds(folder: &Path, count: usize, frames: usize) -> anyhow::Result<()> {
    const FRAME: usize = 576;
    const RATE: f32 = 16_000.0;
    let mut random = Rng::with_seed(SEED);
    for index in 0..count {
        let pitch = 90.0 + 160.0 * random.f32();
        let loudness = if index % 4 == 3 {
            0.0
        } else {
            0.1 + 0.2 * random.f32()
        };
        let sample = |at: usize| {
            let time = at as f32 / RATE;
            let overtone = |n: u8| {
                let n = f32::from(n);
                (std::f32::consts::TAU * pitch * n * time).sin() / n
            };
            let swell = (std::f32::consts::TAU * 4.0 * time).sin().abs();
            loudness * swell * (1..=8).map(overtone).sum::<f32>() + 0.01 * (random.f32() - 0.5)
        };
        let values: Vec<f32> = (0..frames * FRAME).map(sample).collect();
        let tensor = Tensor::from_vec(vec![frames, FRAME], values)?;
        let request = folder.join(format!("{index:03}"));
        fs::create_dir_all(&request)?;
        fs::write(request.join("input.npy"), npy::encode(&tensor))?;
        if frames == 1 {
            let rate = Tensor::from_vec(vec![], vec![16_000i64])?;
            fs::write(request.join("sr.npy"), npy::encode(&rate))?;
        }
    }
    Ok(())
}
