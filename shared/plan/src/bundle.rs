//! A bundle on disk: reading with every hash checked, writing that appears whole or not at all.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{FileEntry, Fingerprint, Manifest, MappedFile, map_file};

/// The contract's file name.
pub const MANIFEST_FILE: &str = "manifest.json";

/// Weights of all stages of a side, which the stage files refer to as external data.
pub const WEIGHTS_FILE: &str = "weights.bin";

/// Which half of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// `edge/`: what the device needs.
    Edge,
    /// `cloud/`: what the service needs.
    Cloud,
}

impl Side {
    /// The side's folder in a bundle.
    pub const fn folder(self) -> &'static str {
        match self {
            Side::Edge => "edge",
            Side::Cloud => "cloud",
        }
    }

    /// Whether a file of a bundle, by its path in it, is this side's.
    pub(crate) fn holds(self, path: &str) -> bool {
        path.strip_prefix(self.folder())
            .is_some_and(|rest| rest.starts_with('/'))
    }
}

/// A bundle that cannot be read or written.
#[derive(Debug, Error)]
pub enum BundleError {
    /// The operating system refused.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// Not a bundle at all.
    #[error(
        "{} is not a bundle: it has no {MANIFEST_FILE}; make one with `seamline split MODEL --at SEAM -o NAME.seam`",
        path.display()
    )]
    NotABundle {
        /// The folder.
        path: PathBuf,
    },
    /// The manifest is of another format.
    #[error(
        "{MANIFEST_FILE} has format {got}; this build reads format {supported}: use the Seamline that wrote it, or split the model again"
    )]
    Format {
        /// In the file.
        got: u32,
        /// What this build reads.
        supported: u32,
    },
    /// The manifest is not valid.
    #[error("{MANIFEST_FILE} is not valid: {0}")]
    Manifest(String),
    /// A file is missing, of another length or of another content than the manifest says.
    #[error(
        "{}: {problem}; the bundle was changed or only half copied: copy it again, or split the model again",
        path.display()
    )]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

/// A bundle on disk whose manifest is valid and whose files of one side have been verified.
#[derive(Clone, Debug)]
pub struct Bundle {
    root: PathBuf,
    side: Side,
    manifest: Manifest,
    fingerprint: Fingerprint,
}

impl Bundle {
    /// Opens the bundle at `root` and verifies length and BLAKE3 of every file of `side`. A
    /// symbolic link inside the bundle is refused.
    ///
    /// # Errors
    /// [`BundleError`].
    pub fn open(root: &Path, side: Side) -> Result<Bundle, BundleError> {
        let (manifest, fingerprint) = Self::read_manifest(root)?;
        let bundle = Bundle {
            root: root.to_owned(),
            side,
            manifest,
            fingerprint,
        };
        let files = &bundle.manifest.files;
        for file in files.iter().filter(|file| side.holds(&file.path)) {
            bundle.verify_file(file)?;
        }
        Ok(bundle)
    }

    /// Reads only the manifest; no other file is touched.
    ///
    /// # Errors
    /// [`BundleError`].
    pub fn read_manifest(root: &Path) -> Result<(Manifest, Fingerprint), BundleError> {
        let path = root.join(MANIFEST_FILE);
        if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink()) {
            return Err(linked(&path));
        }
        let json = match map_file(&path).map(|file| file.bytes().clone()) {
            Ok(json) => json,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Err(BundleError::NotABundle {
                    path: root.to_owned(),
                });
            }
            Err(error) => return Err(BundleError::Io { path, error }),
        };
        Ok((Manifest::parse(&json)?, Fingerprint::of(&json)))
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The side whose files were verified.
    pub fn side(&self) -> Side {
        self.side
    }

    /// The contract.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// What both sides present.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The ONNX file of stage `index` on this side, where the side holds it.
    pub fn stage_file(&self, index: usize) -> Option<PathBuf> {
        let stage = self.manifest.stages.get(index)?;
        let path = match self.side {
            Side::Edge => stage.edge.as_ref(),
            Side::Cloud => stage.cloud.as_ref(),
        }?;
        Some(self.root.join(path))
    }

    /// This side's weights, mapped; `None` where its stages have none.
    ///
    /// # Errors
    /// [`BundleError::Io`].
    pub fn weights(&self) -> Result<Option<MappedFile>, BundleError> {
        let relative = format!("{}/{WEIGHTS_FILE}", self.side.folder());
        if !self.manifest.files.iter().any(|file| file.path == relative) {
            return Ok(None);
        }
        let path = self.root.join(relative);
        map_file(&path)
            .map(Some)
            .map_err(|error| BundleError::Io { path, error })
    }

    fn verify_file(&self, file: &FileEntry) -> Result<(), BundleError> {
        let path = self.root.join(&file.path);
        let problem = |problem: String| BundleError::File {
            path: path.clone(),
            problem,
        };
        // Each part of the path, so that a linked folder is caught as well as a linked file.
        let mut part = self.root.clone();
        for name in file.path.split('/') {
            part.push(name);
            let metadata = fs::symlink_metadata(&part).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => problem("the file is missing".into()),
                _ => BundleError::Io {
                    path: part.clone(),
                    error,
                },
            })?;
            if metadata.is_symlink() {
                return Err(linked(&path));
            }
        }
        let mapped = map_file(&path).map_err(|error| BundleError::Io {
            path: path.clone(),
            error,
        })?;
        let got = mapped.bytes().len() as u64;
        if got != file.bytes {
            return Err(problem(format!(
                "the manifest says {} bytes, it has {got}",
                file.bytes
            )));
        }
        if Fingerprint::of(mapped.bytes()) != file.blake3 {
            return Err(problem("its BLAKE3 is not the manifest's".into()));
        }
        Ok(())
    }
}

/// A link could lead outside the bundle, to what was never verified.
fn linked(path: &Path) -> BundleError {
    BundleError::File {
        path: path.to_owned(),
        problem: "it is, or lies behind, a symbolic link".into(),
    }
}

/// Writes a bundle beside its final place and renames it there when it is complete.
pub struct BundleWriter {
    target: PathBuf,
    staging: PathBuf,
    files: Vec<FileEntry>,
}

impl BundleWriter {
    /// Begins a bundle that will stand at `target`.
    ///
    /// # Errors
    /// [`BundleError::Io`].
    pub fn create(target: &Path) -> Result<BundleWriter, BundleError> {
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let staging = target.with_file_name(name);
        let io = |error| BundleError::Io {
            path: staging.clone(),
            error,
        };
        if staging.exists() {
            fs::remove_dir_all(&staging).map_err(io)?;
        }
        fs::create_dir_all(&staging).map_err(io)?;
        Ok(BundleWriter {
            target: target.to_owned(),
            staging,
            files: Vec::new(),
        })
    }

    /// Adds a file; `path` is relative to the bundle, with `/`.
    ///
    /// # Errors
    /// [`BundleError::Io`].
    pub fn add(&mut self, path: &str, content: &[u8]) -> Result<(), BundleError> {
        self.add_with(path, |out| out.write_all(content))
    }

    /// Adds a file that `write` streams, so that large weights need not be in memory.
    ///
    /// # Errors
    /// [`BundleError::Io`].
    pub fn add_with(
        &mut self,
        path: &str,
        write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
    ) -> Result<(), BundleError> {
        let full = self.staging.join(path);
        let io = |error| BundleError::Io {
            path: full.clone(),
            error,
        };
        if let Some(parent) = full.parent() {
            fs::create_dir_all(parent).map_err(io)?;
        }
        let file = fs::File::create(&full).map_err(io)?;
        let mut sink = Hashing {
            file: io::BufWriter::new(file),
            hash: blake3::Hasher::new(),
            bytes: 0,
        };
        write(&mut sink)
            .and_then(|()| io::Write::flush(&mut sink))
            .map_err(io)?;
        self.files.push(FileEntry {
            path: path.to_owned(),
            bytes: sink.bytes,
            blake3: Fingerprint(*sink.hash.finalize().as_bytes()),
        });
        Ok(())
    }

    /// Adds a file that is no part of the contract: it may change without changing the
    /// fingerprint.
    ///
    /// # Errors
    /// [`BundleError::Io`].
    pub fn add_outside_contract(&self, path: &str, content: &[u8]) -> Result<(), BundleError> {
        let full = self.staging.join(path);
        fs::write(&full, content).map_err(|error| BundleError::Io {
            path: full.clone(),
            error,
        })
    }

    /// Where a file that was added lies until [`BundleWriter::finish`].
    pub fn path(&self, path: &str) -> PathBuf {
        self.staging.join(path)
    }

    /// Writes `manifest`, its file list filled in, and moves the bundle to its place; a bundle
    /// that stood there is replaced.
    ///
    /// # Errors
    /// [`BundleError`]; the old bundle is then still there.
    pub fn finish(mut self, mut manifest: Manifest) -> Result<Fingerprint, BundleError> {
        self.files.sort_by(|a, b| a.path.cmp(&b.path));
        manifest.files = std::mem::take(&mut self.files);
        let json = manifest.to_json()?;
        let io = |path: &Path| {
            let path = path.to_owned();
            move |error| BundleError::Io { path, error }
        };
        fs::write(self.staging.join(MANIFEST_FILE), &json).map_err(io(&self.staging))?;
        if self.target.exists() {
            if !self.target.join(MANIFEST_FILE).is_file() {
                return Err(BundleError::Io {
                    path: self.target.clone(),
                    error: io::Error::new(
                        io::ErrorKind::AlreadyExists,
                        "exists and is not a bundle; choose another output",
                    ),
                });
            }
            let old = self.staging.with_extension("old");
            fs::rename(&self.target, &old).map_err(io(&self.target))?;
            fs::rename(&self.staging, &self.target).map_err(io(&self.target))?;
            fs::remove_dir_all(&old).map_err(io(&old))?;
        } else {
            fs::rename(&self.staging, &self.target).map_err(io(&self.target))?;
        }
        Ok(Fingerprint::of(&json))
    }
}

/// Counts and hashes what goes to a file.
struct Hashing {
    file: io::BufWriter<fs::File>,
    hash: blake3::Hasher,
    bytes: u64,
}

impl io::Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for BundleWriter {
    fn drop(&mut self) {
        // After `finish` the folder is gone; otherwise nothing half written may stay.
        let _ = fs::remove_dir_all(&self.staging);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::tests::manifest;

    fn bundle(folder: &Path) -> PathBuf {
        let root = folder.join("m.seam");
        let mut writer = BundleWriter::create(&root).unwrap();
        writer.add("cloud/stage0.onnx", b"abc").unwrap();
        writer.finish(manifest()).unwrap();
        root
    }

    #[test]
    fn a_written_bundle_opens_and_replaces_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let root = bundle(folder.path());
        let first = Bundle::open(&root, Side::Cloud).unwrap();
        assert_eq!(first.stage_file(0), Some(root.join("cloud/stage0.onnx")));
        bundle(folder.path());
        let second = Bundle::open(&root, Side::Cloud).unwrap();
        assert_eq!(first.fingerprint(), second.fingerprint());
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            1,
            "nothing half written stays"
        );
    }

    #[test]
    fn a_folder_that_is_no_bundle_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("precious.seam");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("data"), b"keep").unwrap();
        let mut writer = BundleWriter::create(&root).unwrap();
        writer.add("cloud/stage0.onnx", b"abc").unwrap();
        assert!(writer.finish(manifest()).is_err());
        assert_eq!(fs::read(root.join("data")).unwrap(), b"keep");
    }

    #[test]
    fn an_edited_truncated_missing_or_linked_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = bundle(folder.path());
        let file = root.join("cloud/stage0.onnx");
        let refusal = || Bundle::open(&root, Side::Cloud).unwrap_err().to_string();

        fs::write(&file, b"abd").unwrap();
        assert!(refusal().contains("BLAKE3"), "{}", refusal());
        fs::write(&file, b"ab").unwrap();
        assert!(
            refusal().contains("says 3 bytes, it has 2"),
            "{}",
            refusal()
        );
        fs::remove_file(&file).unwrap();
        assert!(refusal().contains("missing"), "{}", refusal());
        #[cfg(unix)]
        {
            let outside = folder.path().join("outside");
            fs::write(&outside, b"abc").unwrap();
            std::os::unix::fs::symlink(&outside, &file).unwrap();
            assert!(refusal().contains("symbolic link"), "{}", refusal());
        }
    }

    /// Also where what the link leads to has the right content.
    #[cfg(unix)]
    #[test]
    fn a_linked_folder_and_a_linked_manifest_are_refused() {
        for part in ["cloud", MANIFEST_FILE] {
            let folder = tempfile::tempdir().unwrap();
            let root = bundle(folder.path());
            Bundle::open(&root, Side::Cloud).unwrap();
            let outside = folder.path().join("outside");
            fs::rename(root.join(part), &outside).unwrap();
            std::os::unix::fs::symlink(&outside, root.join(part)).unwrap();
            let error = Bundle::open(&root, Side::Cloud).unwrap_err().to_string();
            assert!(
                error.contains("symbolic link") && error.contains(part),
                "{error}"
            );
        }
    }

    #[test]
    fn an_empty_folder_is_not_a_bundle() {
        let folder = tempfile::tempdir().unwrap();
        let error = Bundle::open(folder.path(), Side::Edge).unwrap_err();
        assert!(
            error.to_string().contains("has no manifest.json"),
            "{error}"
        );
        assert!(error.to_string().contains("seamline split"), "{error}");
    }
}
