//! Text from scores: greedy CTC decoding (Graves et al., 2006), and the edits between two texts
//! (Levenshtein, 1966).

use super::scores::{Scores, argmax};

/// Characters by class: class 0 is CTC's blank, then those of the model's metadata, one a line,
/// and, where there is one class more, the space.
pub(super) fn charset(metadata: &str, classes: usize) -> Option<Vec<String>> {
    let mut characters: Vec<String> = vec![String::new()];
    characters.extend(metadata.lines().map(str::to_owned));
    if characters.len() + 1 == classes {
        characters.push(" ".into());
    }
    (characters.len() == classes).then_some(characters)
}

/// What the scores read: the best class of each position, runs of the same one taken once, blanks
/// left out.
pub(super) fn read(scores: &Scores, charset: &[String]) -> String {
    let mut text = String::new();
    let mut before = 0;
    for row in scores.rows() {
        let class = argmax(row).unwrap_or(0);
        if class != before && class != 0 {
            text.extend(charset.get(class).map(String::as_str));
        }
        before = class;
    }
    text
}

/// Edits from `read` to `label`, and the label's characters. Spaces at the ends do not count.
pub(super) fn errors(read: &str, label: &str) -> (f64, f64) {
    let read: Vec<char> = read.trim().chars().collect();
    let label: Vec<char> = label.trim().chars().collect();
    (edits(&read, &label) as f64, label.len() as f64)
}

/// The fewest insertions, removals and replacements.
fn edits(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.iter().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(left != right);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_the_fewest() {
        let count = |a: &str, b: &str| errors(a, b).0;
        assert_eq!(count("kitten", "sitting"), 3.0);
        assert_eq!(count("", "abc"), 3.0);
        assert_eq!(count("abc", ""), 3.0);
        assert_eq!(count("abc", " abc "), 0.0);
    }

    #[test]
    fn runs_are_taken_once_and_blanks_left_out() {
        let charset = charset("a\nb", 4).unwrap();
        assert_eq!(charset, ["", "a", "b", " "]);
        let values = [1, 1, 0, 1, 2, 2, 3, 0].map(|class| {
            let mut row = [0.0; 4];
            row[class] = 1.0;
            row
        });
        let scores = Scores {
            values: values.concat(),
            width: 4,
        };
        assert_eq!(read(&scores, &charset), "aab ");
    }

    #[test]
    fn a_charset_has_as_many_characters_as_classes() {
        assert_eq!(charset("a\nb", 3).unwrap().len(), 3);
        assert!(charset("a\nb", 7).is_none());
    }
}
