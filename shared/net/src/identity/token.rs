//! Device tokens: 32 random bytes on the device, their BLAKE3 on the service.

use std::fmt;
use std::path::Path;

use seamline_plan::read_text;

use super::peer::{PeerIdentity, Proof};
use super::{IdentityError, create};

/// The most that is read of a `NAME.token` file.
const MAX_TOKEN_BYTES: u64 = 4 << 10;

/// The most that is read of a `tokens` file: some hundred thousand devices.
const MAX_LIST_BYTES: u64 = 16 << 20;

/// A device's secret.
#[derive(Clone, PartialEq, Eq)]
pub struct DeviceToken([u8; 32]);

impl fmt::Debug for DeviceToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeviceToken(secret)")
    }
}

impl DeviceToken {
    /// A new one, from the operating system's randomness.
    ///
    /// # Errors
    /// [`IdentityError::Unusable`] where the system gives none.
    pub fn random() -> Result<DeviceToken, IdentityError> {
        let mut token = [0; 32];
        create::fill_random(&mut token)?;
        Ok(DeviceToken(token))
    }

    /// Of 64 hex digits.
    pub fn from_hex(hex: &str) -> Option<DeviceToken> {
        blake3::Hash::from_hex(hex.trim())
            .ok()
            .map(|bytes| DeviceToken(*bytes.as_bytes()))
    }

    /// As 64 hex digits: the secret itself.
    pub fn to_hex(&self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }

    /// Reads a `NAME.token` file.
    ///
    /// # Errors
    /// [`IdentityError`], which names the file and says how to make one.
    pub fn load(path: &Path) -> Result<DeviceToken, IdentityError> {
        let hex =
            read_text(path, MAX_TOKEN_BYTES).map_err(|error| IdentityError::io(path, error))?;
        DeviceToken::from_hex(&hex).ok_or_else(|| IdentityError::Content {
            path: path.to_owned(),
            expected: "a device token",
            problem: "it is not 64 hex digits".to_owned(),
        })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// What the service keeps.
    pub fn hash(&self) -> blake3::Hash {
        blake3::hash(&self.0)
    }
}

/// The tokens that a service accepts: a line `HASH NAME` each; `#` begins a comment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenList {
    entries: Vec<(blake3::Hash, String)>,
}

impl TokenList {
    /// Reads a `tokens` file.
    ///
    /// # Errors
    /// [`IdentityError`], which names the file and the line.
    pub fn load(path: &Path) -> Result<TokenList, IdentityError> {
        let text =
            read_text(path, MAX_LIST_BYTES).map_err(|error| IdentityError::io(path, error))?;
        let mut list = TokenList::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let entry = line
                .split_once(char::is_whitespace)
                .and_then(|(hash, name)| {
                    Some((blake3::Hash::from_hex(hash).ok()?, name.trim().to_owned()))
                });
            list.entries
                .push(entry.ok_or_else(|| IdentityError::Content {
                    path: path.to_owned(),
                    expected: "token hashes",
                    problem: format!("line {} is not `HASH NAME`", index + 1),
                })?);
        }
        Ok(list)
    }

    /// Accepts `token` under `name`.
    pub fn add(&mut self, token: &DeviceToken, name: impl Into<String>) {
        self.entries.push((token.hash(), name.into()));
    }

    /// Whose token it is. The time taken does not tell which entry came close: hashes are
    /// compared in constant time, and all of them.
    pub fn identify(&self, token: &[u8]) -> Option<PeerIdentity> {
        let hash = blake3::hash(token);
        let mut found = None;
        for (known, name) in &self.entries {
            // `Hash`'s equality is constant-time.
            if *known == hash {
                found = Some(name);
            }
        }
        found.map(|name| PeerIdentity {
            name: name.clone(),
            proof: Proof::Token,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_token_is_found_by_its_hash_only() {
        let token = DeviceToken::random().unwrap();
        let mut list = TokenList::default();
        list.add(&DeviceToken::random().unwrap(), "other");
        list.add(&token, "camera-1");
        assert_eq!(list.identify(token.bytes()).unwrap().name, "camera-1");
        assert_eq!(list.identify(token.hash().as_bytes()), None);
        assert_eq!(list.identify(b""), None);
        assert_eq!(DeviceToken::from_hex(&token.to_hex()), Some(token.clone()));
        assert!(!format!("{token:?}").contains(&token.to_hex()));
    }

    #[test]
    fn a_bad_line_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        fs::write(&path, "# devices\n\nnot-a-hash camera\n").unwrap();
        let error = TokenList::load(&path).unwrap_err().to_string();
        assert!(error.contains("line 3 is not `HASH NAME`"), "{error}");
    }
}
