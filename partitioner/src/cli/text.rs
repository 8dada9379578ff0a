//! Numbers and tables as people read them.

/// `1,234,567`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `512 B`, `588.0 KiB`, `6.5 MiB`.
pub(crate) fn bytes(number: u64) -> String {
    scaled(number as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"])
}

/// `950 FLOPs`, `1.2 GFLOPs`.
pub(crate) fn flops(number: f64) -> String {
    scaled(
        number,
        1000.0,
        &["FLOPs", "kFLOPs", "MFLOPs", "GFLOPs", "TFLOPs"],
    )
}

fn scaled(mut number: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    // What would round to a whole step takes the next unit.
    let half_of_last_digit = |unit| if unit == 0 { 0.5 } else { 0.05 };
    while number >= step - half_of_last_digit(unit) && unit + 1 < units.len() {
        number /= step;
        unit += 1;
    }
    let decimals = usize::from(unit > 0);
    format!("{number:.decimals$} {}", units[unit])
}

/// `1 node`, `2 nodes`.
pub(crate) fn plural(number: usize, what: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {what}{ending}", count(number as u64))
}

/// Which side of its column a cell keeps to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// Rows in columns of equal width, two blanks between; the last column is not padded.
pub(crate) fn table(columns: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let titles: Vec<String> = columns
        .iter()
        .map(|(title, _)| (*title).to_owned())
        .collect();
    let lines = || std::iter::once(&titles).chain(rows);
    let width = |column: usize| {
        lines()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..columns.len())
        .map(|column| width(column).unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in lines() {
        let cells: Vec<String> = row
            .iter()
            .zip(columns)
            .zip(&widths)
            .map(|((cell, (_, align)), &width)| match align {
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            })
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_and_separators() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(602_112), "588.0 KiB");
        assert_eq!(flops(999.96e6), "1.0 GFLOPs");
        assert_eq!(plural(1, "node"), "1 node");
        assert_eq!(plural(2000, "node"), "2,000 nodes");
    }

    #[test]
    fn columns_line_up() {
        let rows = [
            vec!["a".into(), "1".into()],
            vec!["long".into(), "200".into()],
        ];
        let text = table(&[("name", Align::Left), ("n", Align::Right)], &rows);
        assert_eq!(text, "name    n\na       1\nlong  200\n");
    }
}
