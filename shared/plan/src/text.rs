//! Errors as a person reads them.

use std::error::Error;

/// `error` and what caused it, each said once: many errors quote their cause in their own text.
pub fn error_text(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Outer {
        #[error("cannot read the file: {0}")]
        Quoting(#[source] io::Error),
        #[error("cannot read the file")]
        Silent(#[source] io::Error),
    }

    #[test]
    fn a_cause_is_said_once() {
        let cause = || io::Error::other("disk on fire");
        for error in [Outer::Quoting(cause()), Outer::Silent(cause())] {
            assert_eq!(error_text(&error), "cannot read the file: disk on fire");
        }
    }
}
