//! `seamline-cloud doctor`.

use std::process::ExitCode;

use crate::cli::load_runtime;

pub(crate) fn run(json: bool) -> anyhow::Result<ExitCode> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = load_runtime(0);
    let (found, problem) = match &runtime {
        Ok(runtime) => (Some(runtime), None),
        Err(error) => (None, Some(seamline_plan::error_text(error.as_ref()))),
    };
    let providers: Vec<String> = found
        .map(|runtime| {
            runtime
                .providers()
                .iter()
                .map(ToString::to_string)
                .collect()
        })
        .unwrap_or_default();
    let library = found.map(|runtime| runtime.options().library.path.display().to_string());
    if json {
        let document = serde_json::json!({
            "cores": cores,
            "onnx_runtime": found.map(|runtime| runtime.build_info()),
            "library": library,
            "providers": providers,
            "problem": problem,
        });
        seamline_plan::outln!("{document}");
    } else {
        seamline_plan::outln!("cores               {cores}");
        match (found, &problem) {
            (Some(runtime), _) => {
                seamline_plan::outln!("ONNX Runtime        {}", runtime.build_info());
                seamline_plan::outln!("  library           {}", library.unwrap_or_default());
                seamline_plan::outln!("  providers         {}", providers.join(", "));
            }
            (None, problem) => {
                seamline_plan::outln!(
                    "ONNX Runtime        missing: {}",
                    problem.as_deref().unwrap_or_default()
                );
            }
        }
    }
    Ok(if problem.is_none() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
