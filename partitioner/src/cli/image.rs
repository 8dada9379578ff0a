//! `--image`: preprocessing of pictures, as text.

use std::path::Path;
use std::str::FromStr;

use anyhow::bail;
use seamline_graph::Graph;
use seamline_partitioner::{ChannelOrder, ImagePreprocess, Resize};
use seamline_plan::format_shape;

const KEYS: &str = "expected `imagenet`, or KEY=VALUE,… with input=NAME, name=NAME, \
                    short=PIXELS or size=HxW, crop=HxW, antialias=yes|no, order=rgb|bgr, \
                    scale=FACTOR, mean=A:B:C, std=A:B:C";

/// Preprocessing whose input may still be open.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ImageSpec {
    /// The model's input, where the text names one.
    input: Option<String>,
    preprocess: ImagePreprocess,
}

/// Reads `imagenet` or `short=256,crop=224x224,…`; later parts win.
pub(crate) fn parse(text: &str) -> Result<ImageSpec, String> {
    let mut spec = ImageSpec {
        input: None,
        preprocess: ImagePreprocess::default(),
    };
    for part in text.split(',') {
        match part.trim().split_once('=') {
            None if part.trim() == "imagenet" => imagenet(&mut spec.preprocess),
            None => return Err(format!("`{part}`: {KEYS}")),
            Some((key, value)) => set(&mut spec, key.trim(), value.trim())?,
        }
    }
    Ok(spec)
}

/// As ImageNet classifiers are fed: the sizes and constants of torchvision, resized without
/// smoothing and with the longer side rounded.
fn imagenet(image: &mut ImagePreprocess) {
    image.resize = Resize::ShortSide(256);
    image.center_crop = Some((224, 224));
    image.mean = [0.485, 0.456, 0.406];
    image.std = [0.229, 0.224, 0.225];
}

fn set(spec: &mut ImageSpec, key: &str, value: &str) -> Result<(), String> {
    let expected = |what: &str| format!("`{key}={value}`: expected {what}");
    let image = &mut spec.preprocess;
    match key {
        "input" | "name" if value.is_empty() => return Err(expected("a name")),
        "input" => spec.input = Some(value.to_owned()),
        "name" => image.picture = value.to_owned(),
        "short" => {
            let short = positive(value).ok_or_else(|| expected("pixels, for example 256"))?;
            image.resize = Resize::ShortSide(short);
        }
        "size" => {
            let (height, width) = extent(value).ok_or_else(|| expected("HxW, such as 224x224"))?;
            image.resize = Resize::Exact { height, width };
        }
        "crop" => {
            let crop = extent(value).ok_or_else(|| expected("HxW, such as 224x224"))?;
            image.center_crop = Some(crop);
        }
        "antialias" => image.antialias = yes_or_no(value).ok_or_else(|| expected("yes or no"))?,
        "order" => {
            image.order = match value {
                "rgb" => ChannelOrder::Rgb,
                "bgr" => ChannelOrder::Bgr,
                _ => return Err(expected("rgb or bgr")),
            }
        }
        "scale" => {
            let factor = number(value).filter(|factor| *factor != 0.0);
            let what = "a factor other than 0, for example 0.00392157 for 1/255";
            image.scale = factor.ok_or_else(|| expected(what))?;
        }
        "mean" => {
            let what = "three numbers A:B:C, in the model's order of channels";
            image.mean = triple(value).ok_or_else(|| expected(what))?;
        }
        "std" => {
            let std = triple(value).filter(|std| std.iter().all(|part| *part != 0.0));
            let what = "three numbers A:B:C other than 0, in the model's order of channels";
            image.std = std.ok_or_else(|| expected(what))?;
        }
        _ => return Err(format!("`{key}` is no key: {KEYS}")),
    }
    Ok(())
}

fn positive(text: &str) -> Option<u32> {
    text.parse().ok().filter(|&number| number > 0)
}

fn extent(text: &str) -> Option<(u32, u32)> {
    let (height, width) = text.split_once('x')?;
    Some((positive(height)?, positive(width)?))
}

fn yes_or_no(text: &str) -> Option<bool> {
    match text {
        "yes" | "true" => Some(true),
        "no" | "false" => Some(false),
        _ => None,
    }
}

fn number(text: &str) -> Option<f32> {
    f32::from_str(text).ok().filter(|number| number.is_finite())
}

fn triple(text: &str) -> Option<[f32; 3]> {
    let numbers: Option<Vec<f32>> = text.split(':').map(number).collect();
    numbers?.try_into().ok()
}

impl ImageSpec {
    /// The preprocessing for the model at `path`: where no input was named, its only picture.
    pub(crate) fn resolve(&self, path: &Path) -> anyhow::Result<ImagePreprocess> {
        let input = match &self.input {
            Some(input) => input.clone(),
            None => only_picture(&Graph::read(path)?)?,
        };
        Ok(ImagePreprocess {
            input,
            ..self.preprocess.clone()
        })
    }
}

/// The name of the only float input of four dimensions.
fn only_picture(graph: &Graph) -> anyhow::Result<String> {
    let values = || graph.inputs.iter().map(|&id| graph.value(id));
    let pictures: Vec<&str> = values()
        .filter(|value| value.dtype.is_some_and(|dtype| dtype.is_float()))
        .filter(|value| value.shape.as_ref().is_some_and(|shape| shape.len() == 4))
        .map(|value| value.name.as_str())
        .collect();
    match pictures.as_slice() {
        [only] => Ok((*only).to_owned()),
        [] => {
            let all: Vec<String> = values()
                .map(|value| {
                    let dtype = value.dtype.map_or("?", |dtype| dtype.name());
                    let shape = value.shape.as_deref().unwrap_or_default();
                    format!("{}: {dtype} {}", value.name, format_shape(shape))
                })
                .collect();
            bail!(
                "--image: no input of the model is a float picture [N, 3, H, W]; it takes {}",
                all.join(", ")
            )
        }
        several => bail!(
            "--image: several inputs may be pictures ({}); name one with --image input=NAME,…",
            several.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_read() {
        let text = "input=x,name=photo,short=256,crop=224x192,antialias=yes,order=bgr,scale=1,\
                    mean=1:2:3,std=4:5:6";
        let image = ImagePreprocess {
            input: String::new(),
            picture: "photo".into(),
            resize: Resize::ShortSide(256),
            antialias: true,
            center_crop: Some((224, 192)),
            order: ChannelOrder::Bgr,
            scale: 1.0,
            mean: [1.0, 2.0, 3.0],
            std: [4.0, 5.0, 6.0],
        };
        let expected = ImageSpec {
            input: Some("x".into()),
            preprocess: image,
        };
        assert_eq!(parse(text), Ok(expected));
        let exact = parse("size=48x320").unwrap().preprocess.resize;
        assert_eq!(
            exact,
            Resize::Exact {
                height: 48,
                width: 320
            }
        );
    }

    #[test]
    fn the_preset_is_spelled_out_and_can_be_changed() {
        let long = "short=256,crop=224x224,mean=0.485:0.456:0.406,std=0.229:0.224:0.225";
        assert_eq!(parse("imagenet"), parse(long));
        assert_eq!(
            parse("imagenet,order=bgr"),
            parse(&format!("{long},order=bgr"))
        );
    }

    #[test]
    fn mistakes_say_what_was_expected() {
        for (text, expected) in [
            ("image-net", "expected `imagenet`, or KEY=VALUE"),
            ("", "expected `imagenet`, or KEY=VALUE"),
            ("sohrt=256", "`sohrt` is no key"),
            ("short=0", "`short=0`: expected pixels"),
            ("crop=224", "expected HxW"),
            ("crop=224x", "expected HxW"),
            ("mean=1:2", "three numbers"),
            ("std=1:0:1", "other than 0"),
            ("order=rbg", "rgb or bgr"),
            ("scale=inf", "a factor"),
            ("antialias=maybe", "yes or no"),
            ("name=", "a name"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
