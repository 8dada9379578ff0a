//! Files: mapping for reading, and writing that leaves the old file or the new one, never half.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use bytes::Bytes;

/// A file mapped into memory. Cloning the [`Bytes`] of [`MappedFile::bytes`] keeps it mapped.
#[derive(Clone)]
pub struct MappedFile {
    bytes: Bytes,
}

impl MappedFile {
    /// The file's content.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

/// Maps `path` for reading; pages come in as they are touched.
///
/// # Errors
/// The operating system's, e.g. when the file does not exist.
pub fn map_file(path: &Path) -> io::Result<MappedFile> {
    // A pipe or a device would block, or never end.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file",
        ));
    }
    let file = File::open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(MappedFile {
            bytes: Bytes::new(),
        });
    }
    #[allow(
        unsafe_code,
        reason = "mapping a file has no safe form; the contract is stated here"
    )]
    // SAFETY: a mapping is undefined behaviour only if the file shrinks or changes below it.
    // Bundle and model files are written once, by rename, and never modified in place by
    // Seamline; whoever edits a model while it is served owns the consequence (SECURITY.md).
    let map = unsafe { memmap2::Mmap::map(&file)? };
    Ok(MappedFile {
        bytes: Bytes::from_owner(map),
    })
}

/// Reads a small text file whole: a key, a token, a configuration. It may be a pipe; one that has
/// more than `most` bytes, or never ends, is refused.
///
/// # Errors
/// The operating system's; [`io::ErrorKind::FileTooLarge`] beyond `most` bytes;
/// [`io::ErrorKind::InvalidData`] where it is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let mut text = Vec::new();
    let file = File::open(path)?;
    file.take(most.saturating_add(1)).read_to_end(&mut text)?;
    if text.len() as u64 > most {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than {most} bytes, the most that is read here"),
        ));
    }
    String::from_utf8(text)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

/// Writes `content` to `path` through a file beside it and a rename, so that a reader or a crash
/// sees the old file or the new one.
///
/// # Errors
/// The operating system's.
pub fn write_atomic(path: &Path, content: &[u8]) -> io::Result<()> {
    // A rename would put a file in the place of a device, a pipe or a link.
    if std::fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
        let problem = "something other than a regular file is there; give another name";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, problem));
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    let written = File::create(&part).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()
    });
    written
        .and_then(|()| std::fs::rename(&part, path))
        .inspect_err(|_| {
            // The write's own error is the one to report.
            let _ = std::fs::remove_file(&part);
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_file_is_read_whole_and_a_larger_one_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_text(&path, 5).unwrap(), "12345");
        let error = read_text(&path, 4).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert!(error.to_string().contains("more than 4 bytes"), "{error}");
        std::fs::write(&path, [0xff]).unwrap();
        let error = read_text(&path, 4).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_without_an_end_is_refused() {
        let error = read_text(Path::new("/dev/zero"), 1024).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
