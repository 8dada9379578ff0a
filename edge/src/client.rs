//! The client: head here, tail in the service.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use seamline_net::{TransportOptions, random_id};
use seamline_ort::{Provider, Runtime, SessionOptions};
use seamline_plan::{Bundle, CodecSpec, Crossing, Cut, Manifest, Side};
use seamline_wire::DEFAULT_PRIORITY;

use crate::answer::{Answer, Timings};
use crate::device::{Device, DeviceState, Encoded, Values};
use crate::error::{Error, ErrorKind};
use crate::link::{Link, LinkOptions, Step};
use crate::stream::{self, Answers, FrameSender, StreamOptions};

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
    deadline: Duration,
    priority: u8,
}

/// Runs a bundle: the head on this device, the tail in a service, or all of it here. Cloning
/// shares stages and connection.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
    deadline: Duration,
    priority: u8,
}

struct Inner {
    device: Arc<Device>,
    link: Option<Link>,
    cut: usize,
    codec: Option<String>,
}

/// A request whose head has run: what [`Client::send`] sends. Clone it to send it again.
#[derive(Clone)]
pub struct Prepared {
    encoded: Arc<Encoded>,
    started: Instant,
}

impl ClientBuilder {
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

    /// The id of the cut. Default: the bundle's.
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
        let link = if self.cloud {
            let link = Link::new(self.link, device.bundle())?;
            link.connect(Instant::now() + self.deadline).await?;
            Some(link)
        } else {
            None
        };
        let inner = Inner {
            device: Arc::new(device),
            link,
            cut,
            codec: self.codec,
        };
        Ok(Client {
            inner: Arc::new(inner),
            deadline: self.deadline,
            priority: self.priority,
        })
    }
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

impl Client {
    /// Begins a client of the bundle in the folder `bundle`.
    pub fn builder(bundle: impl Into<PathBuf>) -> ClientBuilder {
        ClientBuilder {
            bundle: bundle.into(),
            runtime: None,
            providers: Vec::new(),
            link: LinkOptions::default(),
            cloud: false,
            cut: None,
            codec: None,
            deadline: Duration::from_secs(10),
            priority: DEFAULT_PRIORITY,
        }
    }

    /// The contract: inputs, outputs, cuts.
    pub fn manifest(&self) -> &Manifest {
        self.inner.device.bundle().manifest()
    }

    /// The cut that this client uses.
    pub fn cut(&self) -> &Cut {
        &self.manifest().cuts[self.inner.cut]
    }

    /// This client, stages and connection shared, with another [`ClientBuilder::deadline`].
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Client {
        let inner = Arc::clone(&self.inner);
        Client {
            inner,
            deadline,
            ..*self
        }
    }

    /// This client, stages and connection shared, with another [`ClientBuilder::priority`].
    #[must_use]
    pub fn with_priority(&self, priority: u8) -> Client {
        let inner = Arc::clone(&self.inner);
        Client {
            inner,
            priority,
            ..*self
        }
    }

    /// A client that shares this one's stages and has a connection of its own.
    ///
    /// # Errors
    /// [`Error`] where it cannot connect.
    pub async fn with_own_connection(&self) -> Result<Client, Error> {
        let link = match &self.inner.link {
            Some(link) => {
                let link = link.again();
                link.connect(Instant::now() + self.deadline).await?;
                Some(link)
            }
            None => None,
        };
        let inner = Inner {
            device: Arc::clone(&self.inner.device),
            link,
            cut: self.inner.cut,
            codec: self.inner.codec.clone(),
        };
        Ok(Client {
            inner: Arc::new(inner),
            ..*self
        })
    }

    /// Answers one request: checks `inputs`, runs the head, sends what crosses, and waits.
    /// Dropping the future takes the request back.
    ///
    /// # Errors
    /// [`Error`]; [`ErrorKind::Input`] names the input and says what was expected and what came.
    pub async fn infer(&self, inputs: Values) -> Result<Answer, Error> {
        let deadline = self.deadline();
        let prepared = self.prepare(inputs).await?;
        self.send_until(prepared, deadline).await
    }

    /// Checks `inputs`, runs the head and encodes what crosses, on tokio's blocking pool.
    ///
    /// # Errors
    /// As [`Client::infer`].
    pub async fn prepare(&self, inputs: Values) -> Result<Prepared, Error> {
        let client = self.clone();
        tokio::task::spawn_blocking(move || client.prepare_here(inputs))
            .await
            .map_err(|error| Error::new(ErrorKind::Runtime, error))?
    }

    /// As [`Client::prepare`], in the caller's thread.
    ///
    /// # Errors
    /// As [`Client::infer`].
    pub fn prepare_here(&self, inputs: Values) -> Result<Prepared, Error> {
        let started = Instant::now();
        self.inner.device.check(&inputs)?;
        let encoded = self.run_head(inputs, None)?;
        Ok(Prepared {
            encoded: Arc::new(encoded),
            started,
        })
    }

    /// Sends a prepared request and waits for the answer. The deadline counts from here.
    ///
    /// # Errors
    /// As [`Client::infer`].
    pub async fn send(&self, prepared: Prepared) -> Result<Answer, Error> {
        self.send_until(prepared, self.deadline()).await
    }

    /// When the answer to a call made now stops being useful.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.deadline
    }

    pub(crate) async fn send_until(
        &self,
        prepared: Prepared,
        deadline: Instant,
    ) -> Result<Answer, Error> {
        let Prepared { encoded, started } = prepared;
        let (values, mut answer) = self.finish(&encoded, started, deadline, None).await?;
        answer.outputs = self.inner.device.collect(values, None);
        Ok(answer)
    }

    /// A session of a recurrent net: steps in order, state kept on both sides.
    ///
    /// # Errors
    /// [`ErrorKind::Identity`] where the operating system gives no random bytes for its id.
    pub fn session(&self) -> Result<Session, Error> {
        let id = random_id().map_err(|error| Error::new(ErrorKind::Identity, error))?;
        Ok(Session {
            client: self.clone(),
            // Ids are local to a connection: half of the random bits are plenty.
            id: (id >> 64) as u64,
            step: 0,
            state: Arc::new(Mutex::new(DeviceState::default())),
        })
    }

    /// A stream of frames with several requests in flight.
    pub fn stream(&self, options: StreamOptions) -> (FrameSender, Answers) {
        stream::open(self.clone(), options)
    }

    /// Closes the connection; requests in flight fail.
    pub async fn close(&self) {
        if let Some(link) = &self.inner.link {
            link.close().await;
        }
    }

    fn run_head(&self, inputs: Values, state: Option<&DeviceState>) -> Result<Encoded, Error> {
        let choose = |crossing: &Crossing| self.choose_codec(crossing);
        self.inner
            .device
            .run_head(self.cut(), inputs, state, choose)
    }

    fn choose_codec(&self, crossing: &Crossing) -> CodecSpec {
        let named = self
            .inner
            .codec
            .as_deref()
            .and_then(|name| crossing.codecs.iter().find(|codec| codec.name() == name));
        // A valid manifest has at least one codec for each value.
        named
            .or(crossing.codecs.first())
            .cloned()
            .unwrap_or(CodecSpec::Raw)
    }

    /// Sends what was encoded, where the cut has a tail, and gives all values and an answer whose
    /// outputs are still to be filled in.
    async fn finish(
        &self,
        encoded: &Encoded,
        started: Instant,
        deadline: Instant,
        step: Option<Step>,
    ) -> Result<(Values, Answer), Error> {
        let cut = self.cut();
        let mut values = encoded.local.clone();
        let mut timings = Timings {
            edge: encoded.run,
            encode: encoded.encode,
            ..Timings::default()
        };
        let mut answer = Answer {
            outputs: Vec::new(),
            timings,
            cut: cut.id.clone(),
            bytes_sent: encoded
                .payloads
                .iter()
                .map(|payload| payload.len() as u64)
                .sum(),
            bytes_received: 0,
            batch_size: 0,
        };
        if cut.stage < self.manifest().stages.len() {
            let link = self.inner.link.as_ref().ok_or_else(|| {
                Error::text(
                    ErrorKind::Bundle,
                    format!("cut `{}` needs a service", cut.id),
                )
            })?;
            let sent = Instant::now();
            let reply = link
                .request(self.inner.cut, self.priority, deadline, step, encoded)
                .await?;
            let round_trip = sent.elapsed();
            let decoding = Instant::now();
            self.inner
                .device
                .decode(cut, &reply.tensors, &reply.payloads, &mut values)?;
            let time = Duration::from_micros;
            let server = &reply.timings;
            let in_service =
                time(server.queue_us + server.decode_us + server.run_us + server.encode_us);
            timings.wire = round_trip.saturating_sub(in_service);
            timings.queue = time(server.queue_us);
            timings.cloud = time(server.run_us);
            timings.decode = time(server.decode_us + server.encode_us) + decoding.elapsed();
            answer.batch_size = server.batch_size;
            answer.bytes_received = reply
                .payloads
                .iter()
                .map(|payload| payload.len() as u64)
                .sum();
        }
        timings.total = started.elapsed();
        answer.timings = timings;
        Ok((values, answer))
    }
}

/// A session of a recurrent net. Its state lives on the device for the head and in the service
/// for the tail; a failed step leaves both as they were.
pub struct Session {
    client: Client,
    id: u64,
    step: u64,
    state: Arc<Mutex<DeviceState>>,
}

impl Session {
    /// Answers the next step. State inputs are not given; state outputs are not returned.
    ///
    /// # Errors
    /// As [`Client::infer`].
    pub async fn infer(&mut self, inputs: Values) -> Result<Answer, Error> {
        let started = Instant::now();
        self.client.inner.device.check(&inputs)?;
        let (client, state) = (self.client.clone(), Arc::clone(&self.state));
        let head = move || client.run_head(inputs, Some(&state.lock()));
        let encoded = tokio::task::spawn_blocking(head)
            .await
            .map_err(|error| Error::new(ErrorKind::Runtime, error))??;
        let step = Step {
            session: self.id,
            step: self.step,
        };
        let deadline = started + self.client.deadline;
        let finished = self
            .client
            .finish(&encoded, started, deadline, Some(step))
            .await;
        let (values, mut answer) = finished?;
        answer.outputs = self
            .client
            .inner
            .device
            .collect(values, Some(&mut self.state.lock()));
        self.step += 1;
        Ok(answer)
    }

    /// Steps that were answered.
    pub fn steps(&self) -> u64 {
        self.step
    }
}
