//! `seamline-edge probe`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use seamline_edge::{LinkProbe, LinkProber, ProbedRate};
use seamline_plan::{LinkModel, Radio, write_atomic};

#[derive(Args)]
pub(crate) struct Probe {
    /// The service.
    #[arg(value_name = "HOST:PORT")]
    cloud: String,
    /// A bundle that the service holds: its requests, of zeros, measure the rates. Without one only
    /// the round trip is measured.
    #[arg(long, value_name = "BUNDLE")]
    bundle: Option<PathBuf>,
    /// Folder with ca.pem and this device's certificate or token.
    #[arg(long, value_name = "DIR", default_value = "identity")]
    identity: PathBuf,
    /// This device's name in that folder.
    #[arg(long, value_name = "NAME", default_value = "device")]
    device: String,
    /// Name on the service's certificate, where it is not the host's.
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
    /// How long to measure, in seconds.
    #[arg(long, value_name = "S", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Write the link into this file, for `seamline plan --link FILE`.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The link's name in tables and reports; the service's address without it.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Take the energy of this preset's radio: 3g, lte, wifi, 5g or ethernet. A probe cannot measure
    /// it; without this it counts as none.
    #[arg(long, value_name = "PRESET")]
    radio: Option<String>,
}

impl Probe {
    pub(crate) fn run(self, json: bool) -> anyhow::Result<ExitCode> {
        let radio = self.radio()?;
        ensure!(
            self.output.is_none() || self.bundle.is_some(),
            "-o needs a link's rates: give a bundle that the service holds (--bundle NAME.seam)"
        );
        let mut prober = LinkProber::new(&self.cloud, &self.identity, &self.device)
            .time(Duration::from_secs(self.seconds));
        if let Some(bundle) = &self.bundle {
            prober = prober.bundle(bundle);
        }
        if let Some(name) = &self.server_name {
            prober = prober.server_name(name);
        }
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        let probe = tokio.block_on(prober.run())?;
        let name = self.name.as_deref().unwrap_or(&self.cloud);
        let link = probe.link(name, radio);
        if let (Some(path), Some(link)) = (&self.output, &link) {
            let mut content = serde_json::to_vec_pretty(link)?;
            content.push(b'\n');
            write_atomic(path, &content).with_context(|| path.display().to_string())?;
        }
        if json {
            seamline_plan::outln!("{}", document(&probe, link.as_ref()));
        } else {
            print(&probe, self.output.as_ref());
        }
        Ok(ExitCode::SUCCESS)
    }

    fn radio(&self) -> anyhow::Result<Radio> {
        let Some(name) = &self.radio else {
            return Ok(Radio::default());
        };
        match LinkModel::preset(name) {
            Some(preset) => Ok(preset.radio),
            None => {
                let known: Vec<&str> = LinkModel::presets().collect();
                bail!(
                    "there is no preset `{name}`; there are {}",
                    known.join(", ")
                )
            }
        }
    }
}

fn document(probe: &LinkProbe, link: Option<&LinkModel>) -> serde_json::Value {
    let rate = |rate: Option<ProbedRate>| {
        rate.map(|found| {
            serde_json::json!({
                "p50_bps": found.rate.p50_bps,
                "p5_bps": found.rate.p5_bps,
                "at_least": found.at_least,
            })
        })
    };
    serde_json::json!({
        "round_trip": probe.round_trip,
        "loss": probe.loss,
        "up": rate(probe.up),
        "down": rate(probe.down),
        "rounds": probe.rounds,
        "link": link,
    })
}

fn print(probe: &LinkProbe, output: Option<&PathBuf>) {
    let ms = |us: f64| us / 1e3;
    seamline_plan::outln!(
        "round trip  p50 {:.2} ms  p95 {:.2} ms  ({} exchanges)",
        ms(probe.round_trip.p50_us),
        ms(probe.round_trip.p95_us),
        probe.round_trip.samples
    );
    let rate = |name: &str, rate: Option<ProbedRate>, without: &str| match rate {
        Some(found) => {
            let at_least = if found.at_least { "at least " } else { "" };
            seamline_plan::outln!(
                "{name:<10}  p50 {at_least}{:.2} Mbit/s  p5 {:.2} Mbit/s",
                found.rate.p50_bps / 1e6,
                found.rate.p5_bps / 1e6
            );
        }
        None => seamline_plan::outln!("{name:<10}  not measured: {without}"),
    };
    let Some(up) = probe.up else {
        seamline_plan::outln!(
            "rates need requests: give a bundle that the service holds (--bundle NAME.seam)"
        );
        return;
    };
    rate("up", Some(up), "");
    rate(
        "down",
        probe.down,
        "the bundle's answers are too short; plans take it for as fast as up",
    );
    seamline_plan::outln!(
        "loss        {:.2} %  ({} rounds)",
        probe.loss * 100.0,
        probe.rounds
    );
    if let Some(path) = output {
        seamline_plan::outln!("written to {}", path.display());
    }
}
