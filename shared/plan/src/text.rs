//! Text for a person: errors, and what a program prints.

use std::error::Error;
use std::fmt;
use std::io::{self, Write};

/// Prints to stdout as `print!` does, for programs: where stdout cannot be written, e.g. to a full
/// disk, the program ends with exit code 1 and says so, instead of panicking. Control characters,
/// which a hostile file's names may hold, are replaced, so that they drive no terminal.
#[macro_export]
macro_rules! out {
    ($($part:tt)*) => { $crate::write_out(format_args!($($part)*)) };
}

/// [`out!`] and a new line.
#[macro_export]
macro_rules! outln {
    () => { $crate::write_out(format_args!("\n")) };
    ($($part:tt)*) => { $crate::write_out(format_args!("{}\n", format_args!($($part)*))) };
}

/// What [`out!`] does.
#[doc(hidden)]
pub fn write_out(text: fmt::Arguments<'_>) {
    let text = plain(&text.to_string());
    if let Err(error) = io::stdout().lock().write_all(text.as_bytes()) {
        // Where stderr is gone too, the exit code must do.
        let _ = writeln!(io::stderr(), "error: cannot write to stdout: {error}");
        std::process::exit(1);
    }
}

/// `text` with control characters replaced, lines aside.
fn plain(text: &str) -> String {
    let is_plain = |c: char| !c.is_control() || c == '\n';
    let replaced = |c: char| {
        if is_plain(c) {
            c
        } else {
            char::REPLACEMENT_CHARACTER
        }
    };
    text.chars().map(replaced).collect()
}

/// `error` and what caused it, each said once: many errors quote their cause in their own text.
/// Control characters are replaced.
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
    plain(&text)
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
    fn names_from_files_drive_no_terminal() {
        assert_eq!(
            plain("a\u{1b}[2J\u{9b}b\r\nc"),
            "a\u{fffd}[2J\u{fffd}b\u{fffd}\nc"
        );
        let error = Outer::Quoting(io::Error::other("\u{7}bell"));
        assert_eq!(error_text(&error), "cannot read the file: \u{fffd}bell");
    }

    #[test]
    fn a_cause_is_said_once() {
        let cause = || io::Error::other("disk on fire");
        for error in [Outer::Quoting(cause()), Outer::Silent(cause())] {
            assert_eq!(error_text(&error), "cannot read the file: disk on fire");
        }
    }
}
