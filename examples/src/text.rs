//! Pages and lines of text, rendered: what they say and how far they are turned is known exactly.

use ab_glyph::{Font, FontVec, PxScale, ScaleFont, point};
use anyhow::Context;
use image::{Rgb, RgbImage, imageops};

/// A page and how far it is turned.
pub struct Page {
    /// The picture.
    pub picture: RgbImage,
    /// Quarter turns clockwise, 0 to 3: the class that the model should answer.
    pub quarter_turns: usize,
}

/// Every upright page in all four rotations.
pub fn rotations(upright: &[RgbImage]) -> Vec<Page> {
    let turned = |page: &RgbImage, quarter_turns| Page {
        picture: match quarter_turns {
            1 => imageops::rotate90(page),
            2 => imageops::rotate180(page),
            3 => imageops::rotate270(page),
            _ => page.clone(),
        },
        quarter_turns,
    };
    upright
        .iter()
        .flat_map(|page| (0..4).map(move |turns| turned(page, turns)))
        .collect()
}

/// `count` pages of `text`, each beginning at another place, in sizes from small to large print.
///
/// # Errors
/// A font that cannot be read, or no text.
pub fn render(font: Vec<u8>, text: &str, count: usize) -> anyhow::Result<Vec<RgbImage>> {
    const SIZES: [f32; 3] = [14.0, 18.0, 24.0];
    let font = FontVec::try_from_vec(font).context("the font cannot be read")?;
    let words: Vec<&str> = text.split_whitespace().collect();
    anyhow::ensure!(!words.is_empty(), "there is no text to render");
    let pages = (0..count).map(|index| {
        let first = index * 97 % words.len();
        page(
            &font,
            SIZES[index % SIZES.len()],
            words.iter().cycle().skip(first),
        )
    });
    Ok(pages.collect())
}

/// One page, filled from top to bottom.
fn page<'a>(font: &FontVec, size: f32, mut words: impl Iterator<Item = &'a &'a str>) -> RgbImage {
    const WIDTH: u32 = 620;
    const HEIGHT: u32 = 800;
    const MARGIN: f32 = 40.0;
    let scaled = font.as_scaled(PxScale::from(size));
    let mut picture = RgbImage::from_pixel(WIDTH, HEIGHT, Rgb([255; 3]));
    let mut baseline = MARGIN + scaled.ascent();
    let mut x = MARGIN;
    while baseline < HEIGHT as f32 - MARGIN {
        let Some(word) = words.next() else { break };
        if x + width(font, size, word) > WIDTH as f32 - MARGIN {
            x = MARGIN;
            baseline += size * 1.5;
        }
        x = write(
            &mut picture,
            font,
            size,
            (x, baseline),
            word.chars().chain([' ']),
        );
    }
    picture
}

/// A line of text, 48 pixels high and `width` wide, with what it says: words of `text` from the
/// `first` on that fits, as many as fit.
///
/// # Errors
/// A font that cannot be read, or no word that fits.
pub fn line(
    font: &[u8],
    text: &str,
    first: usize,
    wide: u32,
) -> anyhow::Result<(RgbImage, String)> {
    const HEIGHT: u32 = 48;
    const SIZE: f32 = 30.0;
    const MARGIN: f32 = 8.0;
    let font = FontVec::try_from_vec(font.to_vec()).context("the font cannot be read")?;
    let mut said = String::new();
    for word in text.split_whitespace().cycle().skip(first).take(20) {
        let longer = if said.is_empty() {
            word.to_owned()
        } else {
            format!("{said} {word}")
        };
        if width(&font, SIZE, &longer) > wide as f32 - 2.0 * MARGIN {
            if said.is_empty() {
                continue;
            }
            break;
        }
        said = longer;
    }
    anyhow::ensure!(!said.is_empty(), "no word fits into {wide} pixels");
    let mut picture = RgbImage::from_pixel(wide, HEIGHT, Rgb([255; 3]));
    write(&mut picture, &font, SIZE, (MARGIN, 34.0), said.chars());
    Ok((picture, said))
}

fn width(font: &FontVec, size: f32, text: &str) -> f32 {
    let scaled = font.as_scaled(PxScale::from(size));
    let advance = |character| scaled.h_advance(scaled.glyph_id(character));
    text.chars().map(advance).sum()
}

/// Writes from `x` on; returns where the text ends.
fn write(
    picture: &mut RgbImage,
    font: &FontVec,
    size: f32,
    (mut x, baseline): (f32, f32),
    characters: impl Iterator<Item = char>,
) -> f32 {
    let scaled = font.as_scaled(PxScale::from(size));
    for character in characters {
        let mut glyph = scaled.scaled_glyph(character);
        let advance = scaled.h_advance(glyph.id);
        glyph.position = point(x, baseline);
        if let Some(outline) = font.outline_glyph(glyph) {
            draw(picture, &outline);
        }
        x += advance;
    }
    x
}

/// Black ink by coverage.
fn draw(picture: &mut RgbImage, outline: &ab_glyph::OutlinedGlyph) {
    let bounds = outline.px_bounds();
    outline.draw(|x, y, coverage| {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "glyph bounds lie within the page; what does not is skipped below"
        )]
        let (x, y) = (
            bounds.min.x.max(0.0) as u32 + x,
            bounds.min.y.max(0.0) as u32 + y,
        );
        if let Some(pixel) = picture.get_pixel_mut_checked(x, y) {
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "coverage lies within 0 and 1"
            )]
            let ink = (coverage.clamp(0.0, 1.0) * 255.0) as u8;
            pixel.0 = pixel.0.map(|channel| channel.saturating_sub(ink));
        }
    });
}
