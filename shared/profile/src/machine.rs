//! What a machine is, as far as the operating system tells.

use std::fs;
use std::path::Path;
use std::process::Command;

use seamline_kernels::Isa;
use seamline_ort::{Provider, Runtime};
use seamline_plan::Machine;

const UNKNOWN: &str = "unknown";

/// This machine with `runtime` and `providers`; what cannot be found out is `unknown` or 0.
pub fn describe(runtime: &Runtime, name: Option<&str>, providers: &[Provider]) -> Machine {
    let cpu = cpu();
    Machine {
        name: name.unwrap_or(&cpu).to_owned(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        platform: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
        memory_bytes: memory_bytes(),
        runtime: runtime_name(&runtime.options().library.path, runtime.build_info()),
        providers: providers.iter().map(ToString::to_string).collect(),
        kernels: Isa::ALL
            .into_iter()
            .filter(|isa| *isa != Isa::Scalar && isa.is_available())
            .map(|isa| isa.name().to_owned())
            .collect(),
        cpu,
    }
}

/// Resident memory of this process in bytes; `None` where the system does not tell.
pub fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    kib_field(&status, "VmRSS")
}

fn cpu() -> String {
    let linux = || cpu_of(&fs::read_to_string("/proc/cpuinfo").ok()?);
    // Phones name their chip here, and only their core's part number in cpuinfo.
    let android = || output("getprop", &["ro.soc.model"]);
    let mac = || output("sysctl", &["-n", "machdep.cpu.brand_string"]);
    let board = || {
        let model = fs::read_to_string("/proc/device-tree/model").ok()?;
        some_text(model.trim_end_matches('\0'))
    };
    let windows = || some_text(&std::env::var("PROCESSOR_IDENTIFIER").ok()?);
    let found = match std::env::consts::OS {
        "macos" | "ios" => mac(),
        "windows" => windows(),
        "android" => android().or_else(linux),
        _ => linux().or_else(board),
    };
    found.unwrap_or_else(|| UNKNOWN.to_owned())
}

/// The processor's name in the text of `/proc/cpuinfo`; its key differs by architecture.
fn cpu_of(cpuinfo: &str) -> Option<String> {
    ["model name", "Hardware", "cpu model", "cpu", "Model"]
        .iter()
        .find_map(|key| {
            let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
            let (_, value) = lines.find(|(found, _)| found.trim() == *key)?;
            some_text(value)
        })
}

fn memory_bytes() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").ok();
    let machine = meminfo
        .and_then(|text| kib_field(&text, "MemTotal"))
        .or_else(|| output("sysctl", &["-n", "hw.memsize"])?.parse().ok());
    // A container may have less than its machine.
    let group = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group: Option<u64> = group.and_then(|text| text.trim().parse().ok());
    let all = [machine, group].into_iter().flatten();
    all.min().unwrap_or_default()
}

/// The number of KiB behind `key:` in a file of `/proc`, in bytes.
fn kib_field(text: &str, key: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(found, _)| *found == key)?;
    let kib: u64 = value.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// ONNX Runtime's build information lacks its version, its library's name often has it.
fn runtime_name(library: &Path, build_info: &str) -> String {
    let name = library.file_name().unwrap_or_default().to_string_lossy();
    let is_version = |text: &&str| {
        text.contains('.')
            && text.starts_with(|first: char| first.is_ascii_digit())
            && text.ends_with(|last: char| last.is_ascii_digit())
    };
    let version = name
        .split(|c: char| !(c.is_ascii_digit() || c == '.'))
        .map(|text| text.trim_matches('.'))
        .find(is_version);
    let commit = || {
        let (_, rest) = build_info.split_once("git-commit-id=")?;
        rest.split(',').next()
    };
    match (version, commit()) {
        (Some(version), _) => format!("ONNX Runtime {version}"),
        (None, Some(commit)) => format!("ONNX Runtime, commit {commit}"),
        (None, None) => "ONNX Runtime".to_owned(),
    }
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    some_text(&String::from_utf8(output.stdout).ok()?)
}

fn some_text(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_named_by_whatever_key_there_is() {
        let x86 = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon 8480+\n";
        assert_eq!(cpu_of(x86).as_deref(), Some("Xeon 8480+"));
        let pi = "processor\t: 0\nCPU part\t: 0xd08\n\nHardware\t: BCM2711\nModel\t: Pi 4\n";
        assert_eq!(cpu_of(pi).as_deref(), Some("BCM2711"));
        assert_eq!(cpu_of("processor\t: 0\nCPU part\t: 0xd08\n"), None);
    }

    #[test]
    fn the_runtimes_version_is_in_its_librarys_name() {
        let info = "ORT Build Info: git-branch=HEAD, git-commit-id=fab30a4, build type=Release";
        for (library, expected) in [
            ("/x/libonnxruntime.so.1.32.0", "ONNX Runtime 1.32.0"),
            ("/x/libonnxruntime.1.24.1.dylib", "ONNX Runtime 1.24.1"),
            ("/x/onnxruntime.dll", "ONNX Runtime, commit fab30a4"),
        ] {
            assert_eq!(runtime_name(Path::new(library), info), expected);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn linux_tells_of_memory() {
        assert!(resident_bytes().is_some_and(|bytes| bytes > 1 << 20));
        assert!(memory_bytes() > 1 << 28);
    }
}
