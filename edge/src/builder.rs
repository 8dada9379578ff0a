//! How a client is made.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use seamline_net::TransportOptions;
use seamline_ort::{Provider, Runtime, SessionOptions};
use seamline_plan::{Bundle, CodecSpec, Costs, Cut, Side};
use seamline_wire::DEFAULT_PRIORITY;

use crate::adaptive::{Adaptive, Choice};
use crate::client::Client;
use crate::device::Device;
use crate::error::{Error, ErrorKind};
use crate::link::{Link, LinkOptions};

/// How a [`Client`] is made.
#[must_use]
pub struct ClientBuilder {
    bundle: PathBuf,
    runtime: Option<Runtime>,
    providers: Vec<Provider>,
    link: LinkOptions,
    cloud: bool,
    cut: Option<String>,
    codec: Option<String>,
    adaptive: bool,
    deadline: Duration,
    priority: u8,
}

impl ClientBuilder {
    pub(crate) fn new(bundle: PathBuf) -> ClientBuilder {
        ClientBuilder {
            bundle,
            runtime: None,
            providers: Vec::new(),
            link: LinkOptions::default(),
            cloud: false,
            cut: None,
            codec: None,
            adaptive: true,
            deadline: Duration::from_secs(10),
            priority: DEFAULT_PRIORITY,
        }
    }

    /// ONNX Runtime, from [`Runtime::load`]. Required.
    pub fn runtime(mut self, runtime: Runtime) -> ClientBuilder {
        self.runtime = Some(runtime);
        self
    }

    /// The service, `HOST:PORT`. Without it the device runs everything, where the bundle holds
    /// every stage for it.
    pub fn cloud(mut self, address: &str) -> ClientBuilder {
        address.clone_into(&mut self.link.address);
        self.cloud = true;
        self
    }

    /// The folder with `ca.pem` and this device's certificate or token, and the device's name in
    /// it.
    pub fn identity_folder(mut self, folder: &Path, device: &str) -> ClientBuilder {
        self.link.identity = Some((folder.to_owned(), device.to_owned()));
        self
    }

    /// The name on the service's certificate, where it is not the host of its address.
    pub fn server_name(mut self, name: &str) -> ClientBuilder {
        self.link.server_name = Some(name.to_owned());
        self
    }

    /// QUIC's settings.
    pub fn transport(mut self, transport: TransportOptions) -> ClientBuilder {
        self.link.transport = transport;
        self
    }

    /// Execution providers of the head, first choice first. Default: the CPU.
    pub fn providers(mut self, providers: Vec<Provider>) -> ClientBuilder {
        self.providers = providers;
        self
    }

    /// The id of the cut, which all requests then take. Default: chosen for each request where the
    /// client adapts ([`ClientBuilder::adaptive`]), else the bundle's.
    pub fn cut(mut self, id: &str) -> ClientBuilder {
        self.cut = Some(id.to_owned());
        self
    }

    /// The codec for every crossing value whose contract allows it, by name (`raw`, `f16`,
    /// `int8`). Others, and all by default, take the first codec of the contract.
    pub fn codec(mut self, name: &str) -> ClientBuilder {
        self.codec = Some(name.to_owned());
        self
    }

    /// Whether each request takes the cut and the codec that are best at the moment, by the link as
    /// requests find it and the service's load. Default: yes, where the bundle has a `costs.json`
    /// to choose from, a service is given and [`ClientBuilder::cut`] is not called; with
    /// [`ClientBuilder::codec`], among the options with that codec. A `costs.json` that is malformed
    /// or of another contract is named in a warning, and the bundle's default cut is used.
    ///
    /// The choice changes for a gain of 3 % or more ([`MIN_GAIN`]) and at most once in 2 s
    /// ([`MIN_DWELL`]), except away from a service that fails. Nothing is loaded or measured for it.
    /// Switch it off (`false`) where every request is to take the same way: the default cut, or give
    /// one by [`ClientBuilder::cut`].
    ///
    /// [`MIN_GAIN`]: crate::adapt::MIN_GAIN
    /// [`MIN_DWELL`]: crate::adapt::MIN_DWELL
    ///
    /// Where the costs say that the device may also answer alone, it does while the service cannot
    /// be reached or is late, within the deadline of the request; and while that is what is best, a
    /// request a second at most, and one in ten, also sends a cut's payload to the service, to
    /// find out whether the link or the service has become better.
    pub fn adaptive(mut self, adaptive: bool) -> ClientBuilder {
        self.adaptive = adaptive;
        self
    }

    /// Longest time from the call to the answer. Default 10 s. Connecting counts.
    pub fn deadline(mut self, deadline: Duration) -> ClientBuilder {
        self.deadline = deadline;
        self
    }

    /// Urgency in the service's queue: 0 the most urgent, 255 the least. Default 128.
    pub fn priority(mut self, priority: u8) -> ClientBuilder {
        self.priority = priority;
        self
    }

    /// Opens the bundle, verifies its device files, makes the sessions of the head, and connects.
    ///
    /// # Errors
    /// [`Error`], by [`ErrorKind`].
    pub async fn build(self) -> Result<Client, Error> {
        let runtime = self.runtime.ok_or_else(|| {
            Error::text(
                ErrorKind::Runtime,
                "no runtime was given; call ClientBuilder::runtime",
            )
        })?;
        let providers = if self.providers.is_empty() {
            vec![Provider::Cpu]
        } else {
            self.providers
        };
        let path = self.bundle;
        let load = move || {
            let bundle = Bundle::open(&path, Side::Edge)
                .map_err(|error| Error::new(ErrorKind::Bundle, error))?;
            let options = SessionOptions {
                providers,
                ..SessionOptions::default()
            };
            Device::load(&runtime, bundle, &options)
        };
        let device = tokio::task::spawn_blocking(load)
            .await
            .map_err(|error| Error::new(ErrorKind::Runtime, error))??;
        let cut = choose_cut(&device, self.cut.as_deref(), self.cloud)?;
        check_codec(&device.bundle().manifest().cuts[cut], self.codec.as_deref())?;
        let adaptive = if self.cloud && self.adaptive && self.cut.is_none() {
            adaptive(&device, self.codec.as_deref()).map(Arc::new)
        } else {
            None
        };
        let link = if self.cloud {
            Some(Link::new(self.link, device.bundle())?)
        } else {
            None
        };
        let fixed = Choice {
            cut,
            codec: self.codec,
            option: None,
        };
        let client = Client::new(device, link, fixed, adaptive, self.deadline, self.priority);
        client.connect().await?;
        Ok(client)
    }
}

/// The adaptation by the bundle's costs. Without usable costs there is none, which is no failure:
/// they are outside the contract, and the bundle answers without them.
fn adaptive(device: &Device, codec: Option<&str>) -> Option<Adaptive> {
    let bundle = device.bundle();
    let costs = match Costs::read(bundle.root(), bundle.manifest(), bundle.fingerprint()) {
        Ok(costs) => costs?,
        Err(error) => {
            tracing::warn!(%error, "the default cut is used for every request");
            return None;
        }
    };
    let adaptive = Adaptive::new(costs, device, codec);
    if adaptive.is_none() {
        tracing::warn!(
            codec,
            "no option of costs.json can be used on this device; the default cut is used for every \
             request"
        );
    }
    adaptive
}

/// The cut's index, checked against what this device holds.
fn choose_cut(device: &Device, id: Option<&str>, cloud: bool) -> Result<usize, Error> {
    let manifest = device.bundle().manifest();
    let wanted = match (id, cloud) {
        (Some(id), _) => id,
        (None, true) => manifest.default_cut.as_str(),
        (None, false) => {
            let all = manifest
                .cuts
                .iter()
                .find(|cut| cut.stage == manifest.stages.len());
            all.map(|cut| cut.id.as_str()).ok_or_else(|| {
                Error::text(
                    ErrorKind::Bundle,
                    "no service was given, and this bundle has no cut behind the last stage; give \
                     one (--cloud HOST:PORT), or split again with --edge-tail",
                )
            })?
        }
    };
    let (index, cut) = manifest.cut(wanted).ok_or_else(|| {
        let ids: Vec<&str> = manifest.cuts.iter().map(|cut| cut.id.as_str()).collect();
        let text = format!(
            "the bundle has no cut `{wanted}`; there are {}",
            ids.join(", ")
        );
        Error::text(ErrorKind::Bundle, text)
    })?;
    if !device.holds(cut) {
        let text = format!("this device does not hold the stages before cut `{wanted}`");
        return Err(Error::text(ErrorKind::Bundle, text));
    }
    if !cloud && cut.stage < manifest.stages.len() {
        let text = format!("cut `{wanted}` needs a service; give one (--cloud HOST:PORT)");
        return Err(Error::text(ErrorKind::Bundle, text));
    }
    Ok(index)
}

fn check_codec(cut: &Cut, name: Option<&str>) -> Result<(), Error> {
    let Some(name) = name else { return Ok(()) };
    let allowed = || cut.crossing.iter().flat_map(|crossing| &crossing.codecs);
    if let Some(codec) = allowed().find(|codec| codec.name() == name)
        && !seamline_codec::can_encode(codec)
    {
        let text = format!("codec `{name}` needs a build with the feature `webp`");
        return Err(Error::text(ErrorKind::Bundle, text));
    }
    if cut.crossing.is_empty() || allowed().any(|codec| codec.name() == name) {
        return Ok(());
    }
    let mut names: Vec<&str> = allowed().map(CodecSpec::name).collect();
    names.sort_unstable();
    names.dedup();
    let text = format!(
        "cut `{}` allows no codec `{name}`; it allows {}",
        cut.id,
        names.join(", ")
    );
    Err(Error::text(ErrorKind::Bundle, text))
}
