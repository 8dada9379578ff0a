//! Puts faults back, one at a time, and shows that a test fails for each.
//!
//! `cargo run -p seamline-tests --example faults [-- CASE…]`; without cases, all of them.
//!
//! `tests/faults/*.toml` list them: the case, the patch that brings the fault back, and the test
//! that must then fail. The tree is copied to `target/faults/tree`, with a target folder of its
//! own beside it, so that neither the working tree nor its build is touched. Each test is first
//! shown to pass as the tree is. A test that hangs, or takes its process down, has failed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

/// A test that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(300);

/// How often a running test is looked at.
const LOOK: Duration = Duration::from_millis(50);

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

#[derive(Deserialize)]
struct List {
    fault: Vec<Fault>,
}

/// A fault and the test that finds it.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fault {
    /// Number of the behaviour that it breaks.
    case: u32,
    /// The patch, beside the list.
    patch: String,
    /// Package of the test.
    package: String,
    /// Which of the package's test programs, as cargo's arguments: `--test NAME` or `--lib`.
    test: String,
    /// The test's name, or a part of it.
    filter: String,
}

/// How a test went.
enum Run {
    Passed(usize),
    Failed(String),
    DoesNotCompile(String),
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("faults: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool> {
    let cases = std::env::args()
        .skip(1)
        .map(|case| {
            case.parse()
                .map_err(|_| format!("`{case}` is not the number of a case"))
        })
        .collect::<Result<BTreeSet<u32>, _>>()?;
    let root = root()?;
    let faults: Vec<Fault> = read_lists(&root.join("tests/faults"))?
        .into_iter()
        .filter(|fault| cases.is_empty() || cases.contains(&fault.case))
        .collect();
    if faults.is_empty() {
        return Err("no fault of these cases is listed in tests/faults/*.toml".into());
    }
    let place = Place::new(&root)?;
    place.copy(&root)?;
    println!("copied to {}", place.tree.display());

    let sound = place.all_pass(&faults)?;
    let mut caught = 0;
    for fault in &faults {
        let outcome = place.try_fault(fault)?;
        let (word, detail) = match &outcome {
            Run::Failed(how) => {
                caught += 1;
                ("caught", how.clone())
            }
            Run::Passed(_) => ("NOT CAUGHT", format!("{} still passes", fault.filter)),
            Run::DoesNotCompile(error) => ("BROKEN", error.clone()),
        };
        println!(
            "case {:2}  {:<34} {word}: {detail}",
            fault.case, fault.patch
        );
    }
    println!("\n{caught} of {} faults caught", faults.len());
    Ok(sound && caught == faults.len())
}

/// The workspace's folder.
fn root() -> Result<PathBuf> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = tests.parent().ok_or("the tests lie in the workspace")?;
    Ok(root.to_owned())
}

fn read_lists(folder: &Path) -> Result<Vec<Fault>> {
    let mut faults = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            let list: List = toml::from_str(&fs::read_to_string(&path)?)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            faults.extend(list.fault);
        }
    }
    faults.sort_by(|a, b| (a.case, &a.patch).cmp(&(b.case, &b.patch)));
    Ok(faults)
}

/// The copy that faults are put back in.
struct Place {
    tree: PathBuf,
    target: PathBuf,
}

impl Place {
    fn new(root: &Path) -> Result<Place> {
        let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        let folder = target.unwrap_or_else(|| root.join("target")).join("faults");
        let place = Place {
            tree: folder.join("tree"),
            target: folder.join("target"),
        };
        fs::create_dir_all(&place.tree)?;
        Ok(place)
    }

    /// Brings the copy up to date. What did not change is not written, so that it is not built
    /// again.
    fn copy(&self, root: &Path) -> Result<()> {
        let wanted: BTreeSet<PathBuf> = list_files(root)?
            .into_iter()
            .filter(|path| root.join(path).is_file())
            .collect();
        for path in &wanted {
            let content = fs::read(root.join(path))?;
            let copy = self.tree.join(path);
            if fs::read(&copy).ok().as_ref() != Some(&content) {
                if let Some(parent) = copy.parent() {
                    fs::create_dir_all(parent)?;
                }
                fs::write(&copy, content)?;
            }
        }
        remove_others(&self.tree, &self.tree, &wanted)
    }

    /// Shows that every test passes without a fault.
    fn all_pass(&self, faults: &[Fault]) -> Result<bool> {
        let mut seen = BTreeSet::new();
        let mut sound = true;
        for fault in faults {
            if !seen.insert((&fault.package, &fault.test, &fault.filter)) {
                continue;
            }
            let problem = match self.test(fault)? {
                Run::Passed(1..) => continue,
                Run::Passed(0) => "no test has that name".to_owned(),
                Run::Failed(how) => how,
                Run::DoesNotCompile(error) => error,
            };
            sound = false;
            println!(
                "case {:2}  {} {} {}: fails without a fault: {problem}",
                fault.case, fault.package, fault.test, fault.filter
            );
        }
        println!("{} tests looked at without a fault", seen.len());
        Ok(sound)
    }

    fn try_fault(&self, fault: &Fault) -> Result<Run> {
        if let Err(problem) = self.apply(fault, &[]) {
            return Ok(Run::DoesNotCompile(format!(
                "the patch does not apply: {problem}"
            )));
        }
        let outcome = self.test(fault);
        self.apply(fault, &["--reverse"])?;
        outcome
    }

    fn apply(&self, fault: &Fault, how: &[&str]) -> Result<()> {
        let output = Command::new("git")
            .arg("apply")
            .args(how)
            .arg(Path::new("tests/faults").join(&fault.patch))
            .current_dir(&self.tree)
            // The copy lies inside a repository and is none.
            .env(
                "GIT_CEILING_DIRECTORIES",
                self.tree.parent().unwrap_or(&self.tree),
            )
            .output()?;
        succeeded(&output).map_err(Into::into)
    }

    fn test(&self, fault: &Fault) -> Result<Run> {
        let cargo = || {
            let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
            cargo
                .args(["test", "--quiet", "--package", &fault.package])
                .args(fault.test.split_whitespace())
                .current_dir(&self.tree)
                .env("CARGO_TARGET_DIR", &self.target)
                .env("RUST_BACKTRACE", "0");
            cargo
        };
        let built = cargo().arg("--no-run").output()?;
        if let Err(error) = succeeded(&built) {
            return Ok(Run::DoesNotCompile(error));
        }
        let mut test = cargo();
        test.arg(&fault.filter).args(["--", "--format=pretty"]);
        let Some(output) = within(PATIENCE, &mut test, &self.target)? else {
            return Ok(Run::Failed(format!("hangs for {} s", PATIENCE.as_secs())));
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let named = |end: &str| -> Vec<String> {
            text.lines()
                .filter_map(|line| line.strip_prefix("test ")?.strip_suffix(end))
                .map(str::to_owned)
                .collect()
        };
        if output.status.success() {
            return Ok(Run::Passed(named(" ... ok").len()));
        }
        let failed = named(" ... FAILED");
        Ok(Run::Failed(if failed.is_empty() {
            format!("the test's process ends: {}", output.status)
        } else {
            failed.join(", ")
        }))
    }
}

/// What the command said of its failure, in one line.
fn succeeded(output: &Output) -> Result<(), String> {
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let error = text.lines().find(|line| line.starts_with("error"));
    Err(error.unwrap_or("it fails without an error text").to_owned())
}

/// Runs `command`; `None` where it is not done in time and was ended.
fn within(time: Duration, command: &mut Command, folder: &Path) -> Result<Option<Output>> {
    // Into a file: a pipe that nobody reads would fill up.
    let path = folder.join("test-output.txt");
    // Of its own, so that the test's process can be ended with cargo's.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    let mut child = command
        .stdout(fs::File::create(&path)?)
        .stderr(Stdio::null())
        .spawn()?;
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(Output {
                status,
                stdout: fs::read(&path)?,
                stderr: Vec::new(),
            }));
        }
        if started.elapsed() > time {
            end(&mut child)?;
            return Ok(None);
        }
        std::thread::sleep(LOOK);
    }
}

/// Ends a process and, where it has a group of its own, its children.
fn end(child: &mut Child) -> Result<()> {
    if cfg!(unix) {
        Command::new("kill")
            .args(["-KILL", "--", &format!("-{}", child.id())])
            .status()?;
    } else {
        child.kill()?;
    }
    child.wait()?;
    Ok(())
}

/// Every file of the working tree that git does not ignore.
fn list_files(root: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()?;
    succeeded(&output).map_err(|error| format!("git ls-files: {error}"))?;
    let text = String::from_utf8(output.stdout)?;
    let paths = text.split('\0').filter(|path| !path.is_empty());
    Ok(paths.map(PathBuf::from).collect())
}

/// Removes what `folder`, in the copy `tree`, holds beyond `wanted`.
fn remove_others(tree: &Path, folder: &Path, wanted: &BTreeSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            remove_others(tree, &path, wanted)?;
        } else if !wanted.contains(path.strip_prefix(tree)?) {
            // Cargo writes its lock file itself.
            if path.file_name() != Some("Cargo.lock".as_ref()) {
                fs::remove_file(path)?;
            }
        }
    }
    Ok(())
}
