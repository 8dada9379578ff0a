//! The credential of the admin plane.

use std::path::{Path, PathBuf};

use seamline_plan::read_text;

/// Shortest and longest token, in characters.
const LENGTH: std::ops::RangeInclusive<usize> = 16..=1024;

/// The most that is read of a token's file; white space may stand around it.
const MAX_FILE_BYTES: u64 = 4 << 10;

/// A bearer token. Only its hash is kept, so that neither a log nor a core dump shows it, and two
/// tokens are compared by hashes in constant time whatever their lengths.
#[derive(Clone)]
pub struct AdminToken {
    hash: blake3::Hash,
}

/// Why a token cannot be used. None of the texts shows the token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read the admin token file {path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Too short to be safe, or too long for a header.
    #[error(
        "an admin token has {least} to {most} characters, got {0}; make one with `openssl rand -hex 32`",
        least = LENGTH.start(),
        most = LENGTH.end()
    )]
    Length(usize),
    /// A character that a header cannot carry.
    #[error("an admin token consists of visible ASCII characters")]
    Characters,
}

impl AdminToken {
    /// Takes `token` with white space around it removed.
    ///
    /// # Errors
    /// When it has fewer than 16 or more than 1024 characters, or others than visible ASCII.
    pub fn new(token: &str) -> Result<AdminToken, TokenError> {
        let token = token.trim();
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError::Characters);
        }
        if !LENGTH.contains(&token.len()) {
            return Err(TokenError::Length(token.len()));
        }
        Ok(AdminToken {
            hash: blake3::hash(token.as_bytes()),
        })
    }

    /// Reads a token from a file.
    ///
    /// # Errors
    /// When the file cannot be read, or as [`AdminToken::new`].
    pub fn read(path: &Path) -> Result<AdminToken, TokenError> {
        let read = |source| TokenError::Read {
            path: path.to_owned(),
            source,
        };
        AdminToken::new(&read_text(path, MAX_FILE_BYTES).map_err(read)?)
    }

    /// Whether the value of an `Authorization` header carries this token (RFC 6750 section 2.1).
    pub(super) fn accepts(&self, authorization: &[u8]) -> bool {
        const SCHEME: &[u8] = b"bearer ";
        let Some((scheme, token)) = authorization.split_at_checked(SCHEME.len()) else {
            return false;
        };
        // `blake3::Hash` compares in constant time.
        scheme.eq_ignore_ascii_case(SCHEME) && blake3::hash(token.trim_ascii()) == self.hash
    }
}

impl std::fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AdminToken(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    #[test]
    fn accepts_only_the_token_as_bearer() {
        let token = AdminToken::new(&format!("\n{TOKEN} \n")).unwrap();
        for good in ["Bearer 0123456789abcdef", "bearer  0123456789abcdef "] {
            assert!(token.accepts(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            "Bearer",
            "Bearer ",
            "0123456789abcdef",
            "Basic 0123456789abcdef",
            "Bearer 0123456789abcdeF",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdef0",
        ] {
            assert!(!token.accepts(bad.as_bytes()), "{bad}");
        }
        assert_eq!(format!("{token:?}"), "AdminToken(..)");
    }

    #[test]
    fn refuses_tokens_that_are_weak_or_cannot_be_sent() {
        assert!(matches!(AdminToken::new(""), Err(TokenError::Length(0))));
        assert!(matches!(
            AdminToken::new("short"),
            Err(TokenError::Length(5))
        ));
        assert!(matches!(
            AdminToken::new(&"x".repeat(1025)),
            Err(TokenError::Length(1025))
        ));
        assert!(matches!(
            AdminToken::new("with space and more"),
            Err(TokenError::Characters)
        ));
        assert!(matches!(
            AdminToken::new("ünicode-0123456789"),
            Err(TokenError::Characters)
        ));
        let missing = AdminToken::read(Path::new("/nonexistent/token")).unwrap_err();
        assert!(
            missing.to_string().contains("/nonexistent/token"),
            "{missing}"
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_token_file_without_an_end_is_refused() {
        let endless = AdminToken::read(Path::new("/dev/zero")).unwrap_err();
        assert!(
            endless.to_string().contains("/dev/zero")
                && endless.to_string().contains("more than 4096 bytes"),
            "{endless}"
        );
    }
}
