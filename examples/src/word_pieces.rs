//! Sentences as BERT's token ids: words in lower case, each as its longest pieces from the left
//! (WordPiece: Wu et al., 2016).

use std::collections::HashMap;

/// A vocabulary: a token's id is its line.
pub(crate) struct WordPieces<'a> {
    ids: HashMap<&'a str, i64>,
}

impl<'a> WordPieces<'a> {
    pub(crate) fn new(vocabulary: &'a str) -> WordPieces<'a> {
        WordPieces {
            ids: vocabulary.lines().zip(0..).collect(),
        }
    }

    fn id(&self, piece: &str) -> Option<i64> {
        self.ids.get(piece).copied()
    }

    /// `[CLS]`, the pieces of `sentence`, `[SEP]`.
    pub(crate) fn encode(&self, sentence: &str) -> Option<Vec<i64>> {
        let mut ids = vec![self.id("[CLS]")?];
        for word in words(&sentence.to_lowercase()) {
            match self.pieces(&word) {
                Some(pieces) => ids.extend(pieces),
                None => ids.push(self.id("[UNK]")?),
            }
        }
        ids.push(self.id("[SEP]")?);
        Some(ids)
    }

    fn pieces(&self, word: &str) -> Option<Vec<i64>> {
        let mut pieces = Vec::new();
        let mut rest = word;
        while !rest.is_empty() {
            let prefix = if pieces.is_empty() { "" } else { "##" };
            let mut ends = rest.char_indices().map(|(at, c)| at + c.len_utf8()).rev();
            let found =
                ends.find_map(|end| Some((end, self.id(&format!("{prefix}{}", &rest[..end]))?)));
            let (end, id) = found?;
            pieces.push(id);
            rest = &rest[end..];
        }
        Some(pieces)
    }
}

/// Words and signs of punctuation.
fn words(sentence: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for character in sentence.chars() {
        if character.is_alphanumeric() {
            if let Some(word) = words.last_mut() {
                word.push(character);
            }
            continue;
        }
        if !character.is_whitespace() {
            words.push(character.to_string());
        }
        words.push(String::new());
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_their_longest_pieces() {
        let pieces = WordPieces::new("[UNK]\n[CLS]\n[SEP]\nun\n##want\n##wanted\n,\nrun");
        assert_eq!(
            pieces.encode("Unwanted, run!"),
            Some(vec![1, 3, 5, 6, 7, 0, 2])
        );
    }
}
