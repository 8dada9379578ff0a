//! The configuration file: the example equals the defaults, and errors say what is wrong.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::io::Write;
use std::path::Path;

use seamline_cloud::config::{AuthMode, ConfigError, ServeConfig};

const EXAMPLE: &str = include_str!("../seamline-cloud.example.toml");

fn load(text: &str) -> Result<ServeConfig, ConfigError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    ServeConfig::load(file.path())
}

#[test]
fn the_example_states_every_default() {
    let default = ServeConfig::default();
    default.check().unwrap();
    assert_eq!(load(EXAMPLE).unwrap(), default);
    assert_eq!(load("").unwrap(), default);

    // Not one field is left out, but for those that have no default value.
    let written: toml::Table = toml::to_string(&default).unwrap().parse().unwrap();
    let stated: toml::Table = EXAMPLE.parse().unwrap();
    assert_eq!(stated, written);
    assert!(
        EXAMPLE.contains("\n# token_file = "),
        "the optional field is shown, commented out"
    );
}

#[test]
fn fields_are_read() {
    let config = load(
        "listen = \"[::1]:9000\"\n\
         [identity]\nauth = \"either\"\n\
         [admin]\nlisten = \"0.0.0.0:9001\"\ntoken_file = \"admin.token\"\n\
         [batching]\nmax_batch_size = 16\npreferred_batch_sizes = [4, 16]\nmax_queue_delay_us = 500\n",
    )
    .unwrap();
    assert_eq!(config.listen.port(), 9000);
    assert_eq!(config.identity.auth, AuthMode::Either);
    assert_eq!(
        config.admin.token_file.as_deref(),
        Some(Path::new("admin.token"))
    );
    let limits = config.batching.limits();
    limits.check().unwrap();
    assert_eq!(limits.max_batch_size, 16);
    assert_eq!(limits.max_queue_delay.as_micros(), 500);
}

#[test]
fn unknown_fields_and_wrong_types_are_named() {
    for (text, part) in [
        ("lisen = \"[::1]:9000\"", "unknown field `lisen`"),
        ("[batching]\nmax_batch = 8", "unknown field `max_batch`"),
        ("[batching]\nmax_batch_size = \"8\"", "expected u32"),
        ("[batching]\nmax_batch_size = -8", "-8"),
        ("[identity]\nauth = \"nobody\"", "unknown variant `nobody`"),
        ("listen = 7443", "listen"),
        ("listen", "line 1"),
    ] {
        let error = load(text).unwrap_err();
        assert!(
            matches!(error, ConfigError::Parse { .. }),
            "{text}: {error}"
        );
        assert!(error.to_string().contains(part), "{text}: {error}");
    }
    let error = ServeConfig::load(Path::new("/nonexistent/seamline.toml")).unwrap_err();
    assert!(matches!(error, ConfigError::Read { .. }));
    assert!(
        error.to_string().contains("/nonexistent/seamline.toml"),
        "{error}"
    );
}

/// Each line is out of bounds by one, or contradicts another field.
#[test]
fn values_out_of_bounds_are_named_with_what_is_expected() {
    for (text, field) in [
        ("drain_timeout_ms = 3600001", "drain_timeout_ms"),
        ("bundles = \"\"", "bundles"),
        ("[identity]\ndir = \"\"", "identity.dir"),
        ("[admin]\nlisten = \"0.0.0.0:7444\"", "admin.listen"),
        ("listen = \"127.0.0.1:7444\"", "admin.listen"),
        ("[batching]\nmax_batch_size = 0", "batching.max_batch_size"),
        (
            "[batching]\nmax_batch_size = 4097",
            "batching.max_batch_size",
        ),
        (
            "[batching]\npreferred_batch_sizes = [9]",
            "batching.preferred_batch_sizes",
        ),
        (
            "[batching]\npreferred_batch_sizes = [0]",
            "batching.preferred_batch_sizes",
        ),
        (
            "[batching]\nmax_queue_delay_us = 10000001",
            "batching.max_queue_delay_us",
        ),
        ("[batching]\nmax_queue_len = 0", "batching.max_queue_len"),
        (
            "[batching]\nmax_queue_len = 65537",
            "batching.max_queue_len",
        ),
        (
            "[batching]\ndefault_deadline_ms = 0",
            "batching.default_deadline_ms",
        ),
        ("[executors]\ninstances = 0", "executors.instances"),
        (
            "[executors]\nintra_op_threads = 1025",
            "executors.intra_op_threads",
        ),
        (
            "[executors]\nstall_after_ms = 99",
            "executors.stall_after_ms",
        ),
        (
            "[limits]\nmax_request_bytes = 0",
            "limits.max_request_bytes",
        ),
        (
            "[limits]\nmax_held_bytes = 67108863",
            "limits.max_held_bytes",
        ),
        ("[limits]\nmax_in_flight = 0", "limits.max_in_flight"),
        (
            "[limits]\nmax_in_flight_per_connection = 2049",
            "limits.max_in_flight_per_connection",
        ),
        ("[limits]\nmax_connections = 0", "limits.max_connections"),
        ("[limits]\nmax_sessions = 1000001", "limits.max_sessions"),
        (
            "[transport]\nstream_window_bytes = 16383",
            "transport.stream_window_bytes",
        ),
        (
            "[transport]\nconnection_window_bytes = 8388607",
            "transport.connection_window_bytes",
        ),
        (
            "[transport]\nsend_window_bytes = 1073741825",
            "transport.send_window_bytes",
        ),
        (
            "[transport]\nidle_timeout_ms = 999",
            "transport.idle_timeout_ms",
        ),
    ] {
        let error = load(text).unwrap_err();
        let ConfigError::Invalid { problems } = &error else {
            panic!("{text}: {error}")
        };
        let problem = problems.iter().find(|problem| problem.field == field);
        let problem = problem.unwrap_or_else(|| panic!("{text}: {error}"));
        let shown = error.to_string();
        for part in [
            problem.field,
            problem.value.as_str(),
            problem.expected.as_str(),
        ] {
            assert!(!part.is_empty() && shown.contains(part), "{text}: {shown}");
        }
    }
}

#[test]
fn all_problems_are_told_at_once() {
    let error = load("drain_timeout_ms = 3600001\n[executors]\ninstances = 0").unwrap_err();
    let shown = error.to_string();
    assert!(shown.contains("drain_timeout_ms = 3600001: expected 0 to 3600000 milliseconds"));
    assert!(shown.contains("executors.instances = 0: expected 1 to 256 executors"));
}
