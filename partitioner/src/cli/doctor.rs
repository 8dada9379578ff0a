//! `seamline doctor`.

use std::path::Path;
use std::process::ExitCode;

use seamline_assets::{MODELS, Registry, runtime_pins};
use seamline_ort::{LibrarySource, Runtime};
use seamline_plan::error_text;

use super::Machine;
use super::text;

/// What was found of ONNX Runtime.
enum OnnxRuntime {
    /// It loads.
    Loaded(Runtime),
    /// Not here, and fetched by the first command that needs it.
    Fetchable(&'static str),
    /// Not to be had.
    Missing(String),
}

pub(crate) fn run(machine: &Machine) -> anyhow::Result<ExitCode> {
    let clients = [Registry::PyPi, Registry::Npm].map(|registry| (registry, registry.client()));
    let runtime = find_runtime(machine);
    let usable = !matches!(runtime, OnnxRuntime::Missing(_));
    if machine.json {
        seamline_plan::outln!("{}", document(machine, &clients, &runtime));
    } else {
        print(machine, &clients, &runtime);
    }
    Ok(if usable {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

type Clients = [(Registry, Option<&'static [&'static str]>); 2];

/// Loads what is here; fetches nothing.
fn find_runtime(machine: &Machine) -> OnnxRuntime {
    let is_fetched = runtime_pins()
        .iter()
        .any(|pin| machine.store.cached(pin).is_some());
    let is_linked = cfg!(not(feature = "load-dynamic"));
    if machine.library.is_some() || is_fetched || is_linked || runtime_pins().is_empty() {
        return match machine.runtime() {
            Ok(runtime) => OnnxRuntime::Loaded(runtime),
            Err(error) => OnnxRuntime::Missing(error_text(error.as_ref())),
        };
    }
    let mut registries = runtime_pins().iter().map(|pin| pin.registry);
    match registries.find(|registry| registry.client().is_some()) {
        Some(registry) => OnnxRuntime::Fetchable(registry.client_name()),
        None => OnnxRuntime::Missing(
            "install Python with pip or Node.js with npm, through which it is fetched, or set \
             ORT_DYLIB_PATH to libonnxruntime 1.22 or later"
                .into(),
        ),
    }
}

/// The library's version: the pin's where it was fetched, else what its file name says.
fn version(machine: &Machine, library: &Path) -> Option<String> {
    let pinned = runtime_pins().iter().find(|pin| {
        machine
            .store
            .cached(pin)
            .is_some_and(|cached| cached == library)
    });
    if let Some(pin) = pinned {
        return Some(pin.version.to_owned());
    }
    let name = std::fs::canonicalize(library)
        .ok()?
        .file_name()?
        .to_str()?
        .to_owned();
    let start = name.find(|letter: char| letter.is_ascii_digit())?;
    let digits: String = name[start..]
        .chars()
        .take_while(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    Some(digits.trim_end_matches('.').to_owned())
}

fn source(source: LibrarySource) -> &'static str {
    match source {
        LibrarySource::Environment => "ORT_DYLIB_PATH",
        LibrarySource::Cache | LibrarySource::Fetched => "cache",
        LibrarySource::Linked => "linked into this program",
    }
}

/// Files and bytes below a folder; links are not followed.
fn folder_size(folder: &Path) -> (usize, u64) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.fold((0, 0), |(files, bytes), entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => {
            let (inner_files, inner_bytes) = folder_size(&entry.path());
            (files + inner_files, bytes + inner_bytes)
        }
        // Empty files are locks.
        Ok(metadata) if metadata.is_file() && metadata.len() > 0 => {
            (files + 1, bytes + metadata.len())
        }
        _ => (files, bytes),
    })
}

fn cached_models(machine: &Machine) -> Vec<&'static str> {
    let is_cached = |model: &&seamline_assets::Model| machine.store.cached(&model.pin).is_some();
    MODELS
        .iter()
        .filter(is_cached)
        .map(|model| model.name)
        .collect()
}

fn providers(runtime: &Runtime) -> Vec<String> {
    runtime
        .providers()
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn document(machine: &Machine, clients: &Clients, runtime: &OnnxRuntime) -> serde_json::Value {
    let (files, bytes) = folder_size(machine.store.root());
    let [pip, npm] = clients.map(|(_, client)| client.map(|client| client.join(" ")));
    let onnx_runtime = match runtime {
        OnnxRuntime::Loaded(runtime) => {
            let library = &runtime.options().library;
            serde_json::json!({
                "state": "found",
                "version": version(machine, &library.path),
                "library": library.path,
                "source": source(library.source),
                "build": runtime.build_info(),
                "providers": providers(runtime),
            })
        }
        OnnxRuntime::Fetchable(client) => {
            serde_json::json!({ "state": "fetchable", "client": client })
        }
        OnnxRuntime::Missing(problem) => {
            serde_json::json!({ "state": "missing", "problem": problem })
        }
    };
    serde_json::json!({
        "onnx_runtime": onnx_runtime,
        "pip": pip,
        "npm": npm,
        "cache": { "path": machine.store.root(), "files": files, "bytes": bytes },
        "models": cached_models(machine),
    })
}

fn print(machine: &Machine, clients: &Clients, runtime: &OnnxRuntime) {
    match runtime {
        OnnxRuntime::Loaded(runtime) => {
            let library = &runtime.options().library;
            let version = version(machine, &library.path).unwrap_or_default();
            seamline_plan::outln!("ONNX Runtime  {version}, from {}", source(library.source));
            seamline_plan::outln!("  library     {}", library.path.display());
            seamline_plan::outln!("  providers   {}", providers(runtime).join(", "));
            seamline_plan::outln!("  build       {}", runtime.build_info());
        }
        OnnxRuntime::Fetchable(client) => {
            seamline_plan::outln!(
                "ONNX Runtime  not here yet; the first command that needs it fetches it through {client}"
            );
        }
        OnnxRuntime::Missing(problem) => seamline_plan::outln!("ONNX Runtime  missing: {problem}"),
    }
    for (registry, client) in clients {
        let found = client.map(|client| client.join(" "));
        let missing = match registry {
            Registry::PyPi => "missing; it comes with Python, and fetches ONNX Runtime and models",
            Registry::Npm => "missing; it comes with Node.js, and fetches ONNX Runtime without pip",
        };
        seamline_plan::outln!(
            "{:<12}  {}",
            registry.client_name(),
            found.as_deref().unwrap_or(missing)
        );
    }
    let (files, bytes) = folder_size(machine.store.root());
    let cache = machine.store.root().display();
    seamline_plan::outln!(
        "cache         {cache}: {}, {}",
        text::plural(files, "file"),
        text::bytes(bytes)
    );
    let models = cached_models(machine);
    if models.is_empty() {
        seamline_plan::outln!("models        none cached; `seamline zoo list` lists what there is");
    } else {
        seamline_plan::outln!("models        {}", models.join(", "));
    }
}
