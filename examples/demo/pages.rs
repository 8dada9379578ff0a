//! Real pages of text whose rotation is known: a photograph of one, and rendered ones.

use ab_glyph::{Font, FontVec, PxScale, ScaleFont, point};
use anyhow::Context;
use image::{Rgb, RgbImage, imageops};

/// A page and how far it is turned.
pub(crate) struct Page {
    /// The picture.
    pub(crate) picture: RgbImage,
    /// Quarter turns clockwise, 0 to 3: the class that the model should answer.
    pub(crate) quarter_turns: usize,
}

/// Every upright page in all four rotations.
pub(crate) fn rotations(upright: &[RgbImage]) -> Vec<Page> {
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
pub(crate) fn render(font: Vec<u8>, text: &str, count: usize) -> anyhow::Result<Vec<RgbImage>> {
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
    let width = |text: &str| -> f32 {
        text.chars()
            .map(|c| scaled.h_advance(scaled.glyph_id(c)))
            .sum()
    };
    let mut picture = RgbImage::from_pixel(WIDTH, HEIGHT, Rgb([255; 3]));
    let mut baseline = MARGIN + scaled.ascent();
    let mut x = MARGIN;
    while baseline < HEIGHT as f32 - MARGIN {
        let Some(word) = words.next() else { break };
        if x + width(word) > WIDTH as f32 - MARGIN {
            x = MARGIN;
            baseline += size * 1.5;
        }
        for character in word.chars().chain([' ']) {
            let glyph = scaled.scaled_glyph(character);
            let advance = scaled.h_advance(glyph.id);
            let mut glyph = glyph;
            glyph.position = point(x, baseline);
            if let Some(outline) = font.outline_glyph(glyph) {
                draw(&mut picture, &outline);
            }
            x += advance;
        }
    }
    picture
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
