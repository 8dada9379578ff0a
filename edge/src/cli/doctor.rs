//! `seamline-edge doctor`.

use std::process::ExitCode;

use super::load_runtime;

pub(crate) fn run(json: bool) -> anyhow::Result<ExitCode> {
    let runtime = load_runtime(None);
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
    if json {
        let document = serde_json::json!({
            "onnx_runtime": found.map(|runtime| runtime.build_info()),
            "library": found.map(|runtime| &runtime.options().library.path),
            "providers": providers,
            "problem": problem,
        });
        seamline_plan::outln!("{document}");
    } else if let Some(runtime) = found {
        seamline_plan::outln!("ONNX Runtime   {}", runtime.build_info());
        seamline_plan::outln!(
            "  library      {}",
            runtime.options().library.path.display()
        );
        seamline_plan::outln!("  providers    {}", providers.join(", "));
    } else {
        seamline_plan::outln!(
            "ONNX Runtime   missing: {}",
            problem.as_deref().unwrap_or_default()
        );
    }
    Ok(if problem.is_none() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
