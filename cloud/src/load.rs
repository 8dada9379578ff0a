//! From a folder of bundles to contracts and warm tails.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use seamline_ort::{Runtime, SessionOptions};
use seamline_plan::{Bundle, BundleError, Cut, MANIFEST_FILE, Side, Tensor};
use thiserror::Error;

use crate::admin::Health;
use crate::batcher::BatchLimits;
use crate::contract::Contract;
use crate::executor::Tails;
use crate::tail::{OrtTail, Tail, TailError, Values};

/// Bundles that cannot be served.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The folder cannot be read.
    #[error(
        "cannot read the bundles folder {}: {error}; give another by --bundles or `bundles` in the configuration",
        folder.display()
    )]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// There is nothing to serve.
    #[error(
        "{} holds no bundle (a folder NAME.seam with a {MANIFEST_FILE}); make one with `seamline split MODEL --at SEAM -o {}/NAME.seam`",
        folder.display(),
        folder.display()
    )]
    Empty {
        /// The folder.
        folder: PathBuf,
    },
    /// A bundle is broken.
    #[error("bundle {}: {error}", bundle.display())]
    Bundle {
        /// The bundle.
        bundle: PathBuf,
        /// Why.
        #[source]
        error: BundleError,
    },
    /// A tail cannot be made.
    #[error("bundle {}: {error}", bundle.display())]
    Tail {
        /// The bundle.
        bundle: PathBuf,
        /// Why.
        #[source]
        error: TailError,
    },
    /// The service was told to stop meanwhile.
    #[error("stopped before it was warm")]
    Stopped,
    /// Two folders hold the same contract.
    #[error("{} and {} hold the same contract; remove one", first.display(), second.display())]
    Twice {
        /// One.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
}

/// Opens every bundle in `folder`, or the one that `folder` itself is, and verifies its files.
///
/// # Errors
/// [`LoadError`], which names the bundle: a service never starts with only part of what it was
/// told to serve.
pub fn open_bundles(folder: &Path, max_over_reference: u32) -> Result<Vec<Contract>, LoadError> {
    let mut contracts: Vec<Contract> = Vec::new();
    for path in bundle_folders(folder)? {
        let bundle = Bundle::open(&path, Side::Cloud).map_err(|error| LoadError::Bundle {
            bundle: path.clone(),
            error,
        })?;
        let fingerprint = bundle.fingerprint();
        if let Some(first) = contracts.iter().find(|c| c.fingerprint() == fingerprint) {
            let first = first.bundle().root().to_owned();
            return Err(LoadError::Twice {
                first,
                second: path,
            });
        }
        contracts.push(Contract::new(bundle, max_over_reference));
    }
    if contracts.is_empty() {
        return Err(LoadError::Empty {
            folder: folder.to_owned(),
        });
    }
    Ok(contracts)
}

fn bundle_folders(folder: &Path) -> Result<Vec<PathBuf>, LoadError> {
    if folder.join(MANIFEST_FILE).is_file() {
        return Ok(vec![folder.to_owned()]);
    }
    let failed = |error| LoadError::Folder {
        folder: folder.to_owned(),
        error,
    };
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "seam")
        {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

/// Makes the tails of one executor.
///
/// # Errors
/// [`LoadError::Tail`].
pub fn load_tails(
    runtime: &Runtime,
    contracts: &[Contract],
    options: &SessionOptions,
) -> Result<Tails, LoadError> {
    let tails = contracts.iter().map(|contract| {
        let tail = OrtTail::load(runtime, contract.bundle(), options).map_err(|error| {
            LoadError::Tail {
                bundle: contract.bundle().root().to_owned(),
                error,
            }
        })?;
        Ok(Box::new(tail) as Box<dyn Tail>)
    });
    tails.collect()
}

/// The batch sizes that are warmed: every one up to 16, and beyond it the powers of two, the
/// preferred sizes and the largest.
pub fn buckets(limits: &BatchLimits) -> Vec<u32> {
    const EVERY_SIZE_UP_TO: u32 = 16;
    let max = limits.max_batch_size;
    let small = 1..=max.min(EVERY_SIZE_UP_TO);
    let powers = (0..u32::BITS)
        .map(|bit| 1 << bit)
        .take_while(|&size| size < max);
    let mut sizes: Vec<u32> = small
        .chain(powers)
        .chain(limits.preferred_batch_sizes.iter().copied())
        .collect();
    sizes.push(max);
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Runs every cut of every contract once in every batch bucket, so that the first request of a
/// size is as fast as the second. Zeros are fed; a model that fails on them is served all the
/// same, and the log says so.
///
/// # Errors
/// [`LoadError::Stopped`] once `stop` is set; a run that has begun is finished first.
pub fn warm_up(
    contracts: &[Contract],
    tails: &mut Tails,
    buckets: &[u32],
    health: &Health,
    stop: &AtomicBool,
) -> Result<(), LoadError> {
    let total: usize = contracts
        .iter()
        .map(|contract| contract.manifest().cuts.len())
        .sum();
    let mut done = 0;
    for (contract, tail) in contracts.iter().zip(tails) {
        let bundle = contract.bundle().root().display().to_string();
        for cut in &contract.manifest().cuts {
            health.set_warming(done, total);
            let started = Instant::now();
            let warmed = warm_cut(contract, cut, tail.as_mut(), buckets, stop);
            if stop.load(Ordering::Relaxed) {
                return Err(LoadError::Stopped);
            }
            match warmed {
                Ok(0) => {}
                Ok(runs) => {
                    tracing::info!(bundle, cut = cut.id, runs, time = ?started.elapsed(), "warm");
                }
                Err(error) => {
                    tracing::warn!(bundle, cut = cut.id, %error, "not warmed: the tail fails on zeros");
                }
            }
            done += 1;
        }
    }
    Ok(())
}

fn warm_cut(
    contract: &Contract,
    cut: &Cut,
    tail: &mut dyn Tail,
    buckets: &[u32],
    stop: &AtomicBool,
) -> Result<usize, TailError> {
    let stages = &contract.manifest().stages;
    if cut.stage == stages.len()
        || stages[cut.stage..]
            .iter()
            .any(|stage| stage.cloud.is_none())
    {
        return Ok(0);
    }
    let buckets = if cut.is_batchable() { buckets } else { &[1] };
    for &rows in buckets {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let mut values = Values::new();
        for crossing in &cut.crossing {
            let sizes = crossing.reference.iter().map(|&size| usize::try_from(size));
            let mut shape = sizes.collect::<Result<Vec<usize>, _>>().unwrap_or_default();
            if let (true, Some(axis)) = (cut.is_batchable(), crossing.batch_axis) {
                shape[axis] = rows as usize;
            }
            let zeros = Tensor::zeros(crossing.spec.dtype, shape)?;
            values.insert(crossing.spec.name.clone(), zeros);
        }
        tail.run(cut.stage..stages.len(), &mut values, None)?;
    }
    Ok(buckets.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_small_sizes_powers_and_what_is_preferred() {
        let limits = |max_batch_size, preferred: &[u32]| BatchLimits {
            max_batch_size,
            preferred_batch_sizes: preferred.to_vec(),
            ..BatchLimits::default()
        };
        assert_eq!(buckets(&limits(1, &[])), [1]);
        assert_eq!(buckets(&limits(4, &[])), [1, 2, 3, 4]);
        let sizes = buckets(&limits(100, &[48]));
        assert_eq!(sizes[..16], (1..=16).collect::<Vec<u32>>());
        assert_eq!(sizes[16..], [32, 48, 64, 100]);
    }

    #[test]
    fn a_folder_without_bundles_says_how_to_make_one() {
        let folder = tempfile::tempdir().unwrap();
        let error = open_bundles(folder.path(), 64).unwrap_err().to_string();
        assert!(
            error.contains("holds no bundle") && error.contains("seamline split"),
            "{error}"
        );
        let error = open_bundles(&folder.path().join("absent"), 64)
            .unwrap_err()
            .to_string();
        assert!(error.contains("cannot read the bundles folder"), "{error}");
    }

    #[test]
    fn a_half_written_bundle_stops_the_start() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("half.seam")).unwrap();
        let error = open_bundles(folder.path(), 64).unwrap_err().to_string();
        assert!(
            error.contains("half.seam") && error.contains("manifest.json"),
            "{error}"
        );
    }
}
