//! The client: head here, tail in the service.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use seamline_net::{PathStats, Reply};
use seamline_plan::{CodecSpec, Costs, Crossing, Cut, LinkState, Manifest};

use crate::adaptive::{Adaptation, Adaptive, Choice, ProbeGuard};
use crate::answer::{Answer, Timings};
use crate::builder::ClientBuilder;
use crate::device::{Device, DeviceState, Encoded, Values};
use crate::error::{Error, ErrorKind};
use crate::link::{Link, Step};
use crate::session::Session;
use crate::stream::{self, Answers, FrameSender, StreamOptions};

/// What a service accounts for; it may say anything.
pub(crate) fn in_service(server: &seamline_wire::Timings) -> Duration {
    let parts = [
        server.queue_us,
        server.decode_us,
        server.run_us,
        server.encode_us,
    ];
    Duration::from_micros(parts.into_iter().fold(0, u64::saturating_add))
}

/// How long a client whose service failed tries to reach it in the background.
const RETRY: Duration = Duration::from_secs(5);

/// The longest that a probe is waited for.
const PROBE: Duration = Duration::from_secs(10);

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
    /// Where the client does not adapt.
    fixed: Choice,
    adaptive: Option<Arc<Adaptive>>,
}

/// A request whose head has run: what [`Client::send`] sends. Clone it to send it again.
#[derive(Clone)]
pub struct Prepared {
    encoded: Arc<Encoded>,
    choice: Choice,
    /// Taken by the first that sends.
    probe: Arc<Mutex<Option<Probe>>>,
    started: Instant,
}

/// A payload that is sent aside, to learn about the link.
struct Probe {
    encoded: Encoded,
    choice: Choice,
    _guard: ProbeGuard,
}

impl Client {
    pub(crate) fn new(
        device: Device,
        link: Option<Link>,
        fixed: Choice,
        adaptive: Option<Arc<Adaptive>>,
        deadline: Duration,
        priority: u8,
    ) -> Client {
        let inner = Inner {
            device: Arc::new(device),
            link,
            fixed,
            adaptive,
        };
        Client {
            inner: Arc::new(inner),
            deadline,
            priority,
        }
    }

    /// Connects. Where the service cannot be reached and the device can answer alone, it will.
    pub(crate) async fn connect(&self) -> Result<(), Error> {
        let Some(link) = &self.inner.link else {
            return Ok(());
        };
        let error = match link.connect(self.deadline()).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let alone = self.inner.adaptive.as_ref();
        match alone.filter(|it| error.is_of_the_path() && it.can_go_alone()) {
            Some(adaptive) => {
                tracing::warn!(%error, "the device answers alone until the service is there");
                adaptive.failed(link.path());
                Ok(())
            }
            None => Err(error),
        }
    }

    /// Begins a client of the bundle in the folder `bundle`.
    pub fn builder(bundle: impl Into<PathBuf>) -> ClientBuilder {
        ClientBuilder::new(bundle.into())
    }

    /// The contract: inputs, outputs, cuts.
    pub fn manifest(&self) -> &Manifest {
        self.inner.device.bundle().manifest()
    }

    pub(crate) fn device(&self) -> &Device {
        &self.inner.device
    }

    /// The cut that this client uses; where it adapts, the present choice.
    pub fn cut(&self) -> &Cut {
        let adaptive = self.inner.adaptive.as_ref();
        let cut = adaptive.map_or(self.inner.fixed.cut, |it| it.current().cut);
        &self.manifest().cuts[cut]
    }

    /// The link as requests have found it lately; `None` where the client does not adapt.
    pub fn link_estimate(&self) -> Option<LinkState> {
        Some(self.adaptation()?.link)
    }

    /// What the client believes of its link and what it has chosen; `None` where it does not adapt
    /// ([`ClientBuilder::adaptive`]).
    pub fn adaptation(&self) -> Option<Adaptation> {
        Some(self.inner.adaptive.as_ref()?.status())
    }

    /// The bundle's `costs.json` with what this client's requests have taught: times of the device
    /// and of the service in microseconds, payload sizes in bytes; link, prices and objective are
    /// the plan's. `None` where the client does not adapt ([`ClientBuilder::adaptive`]).
    ///
    /// [`Costs::write`] puts it into the bundle for the next client. The contract and its
    /// fingerprint stay as they are, so that the service need not know. One request moves a time by
    /// 8 % at most, all of a client's together by a factor of 8.
    pub fn learned_costs(&self) -> Option<Costs> {
        Some(self.inner.adaptive.as_ref()?.learned_costs())
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
        let inner = Inner {
            device: Arc::clone(&self.inner.device),
            link: self.inner.link.as_ref().map(Link::again),
            fixed: self.inner.fixed.clone(),
            adaptive: self.inner.adaptive.as_ref().map(|it| Arc::new(it.again())),
        };
        let client = Client {
            inner: Arc::new(inner),
            ..*self
        };
        client.connect().await?;
        Ok(client)
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
        let (choice, probe) = self.choose();
        let (encoded, probe) = match probe {
            None => (self.run_head(&choice, inputs, None)?, None),
            Some((aside, guard)) => {
                let head = self.run_head(&aside, inputs, None)?;
                let cuts = &self.manifest().cuts;
                let (from, cut) = (&cuts[aside.cut], &cuts[choice.cut]);
                let codec = |crossing: &Crossing| crossing.codec(choice.codec.as_deref()).clone();
                let encoded = self.inner.device.run_on(from, &head, cut, codec)?;
                let probe = Probe {
                    encoded: head,
                    choice: aside,
                    _guard: guard,
                };
                (encoded, Some(probe))
            }
        };
        Ok(Prepared {
            encoded: Arc::new(encoded),
            choice,
            probe: Arc::new(Mutex::new(probe)),
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
        self.deadline_of(Instant::now())
    }

    pub(crate) fn deadline_of(&self, started: Instant) -> Instant {
        started + self.deadline
    }

    pub(crate) async fn send_until(
        &self,
        prepared: Prepared,
        deadline: Instant,
    ) -> Result<Answer, Error> {
        let probe = prepared.probe.lock().take();
        if let Some(probe) = probe {
            let client = self.clone();
            tokio::spawn(async move { client.send_probe(probe).await });
        }
        self.look_for_the_service();
        let Prepared {
            encoded,
            choice,
            started,
            ..
        } = prepared;
        let adaptive = self.inner.adaptive.as_ref();
        let patience = adaptive.and_then(|it| it.patience(&choice, deadline));
        let until = patience.unwrap_or(deadline).min(deadline);
        let finish = self.finish(&choice, &encoded, started, until, None);
        let (values, mut answer) = match finish.await {
            Ok(finished) => finished,
            Err(error) if patience.is_some() && error.is_of_the_path() => {
                tracing::debug!(%error, "the device goes on alone");
                self.finish_alone(&choice, encoded, started, deadline, error)
                    .await?
            }
            Err(error) => return Err(error),
        };
        answer.outputs = self.inner.device.collect(values, None);
        Ok(answer)
    }

    /// A session of a recurrent net: steps in order, state kept on both sides.
    ///
    /// # Errors
    /// [`ErrorKind::Identity`] where the operating system gives no random bytes for its id.
    pub fn session(&self) -> Result<Session, Error> {
        let (choice, _) = self.choose();
        Session::new(self.clone(), choice)
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

    fn path(&self) -> Option<PathStats> {
        self.inner.link.as_ref()?.path()
    }

    /// What the next request does, and what it sends aside.
    fn choose(&self) -> (Choice, Option<(Choice, ProbeGuard)>) {
        match &self.inner.adaptive {
            Some(adaptive) => adaptive.decide(self.path()),
            None => (self.inner.fixed.clone(), None),
        }
    }

    pub(crate) fn run_head(
        &self,
        choice: &Choice,
        inputs: Values,
        state: Option<&DeviceState>,
    ) -> Result<Encoded, Error> {
        let cut = &self.manifest().cuts[choice.cut];
        let codec = |crossing: &Crossing| crossing.codec(choice.codec.as_deref()).clone();
        self.inner.device.run_head(cut, inputs, state, codec)
    }

    /// Sends a probe; what it took is learnt, its answer is not needed.
    async fn send_probe(self, probe: Probe) {
        let started = Instant::now();
        let deadline = started + self.deadline.min(PROBE);
        let Probe {
            encoded, choice, ..
        } = &probe;
        let finish = self.finish(choice, encoded, started, deadline, None);
        if let Err(error) = finish.await {
            tracing::debug!(%error, "a probe of the link");
        }
    }

    /// Tries, aside, to reach a service that failed, where it is time to.
    fn look_for_the_service(&self) {
        let Some(adaptive) = self.inner.adaptive.as_ref() else {
            return;
        };
        if !adaptive.begins_retry() {
            return;
        }
        let (client, adaptive) = (self.clone(), Arc::clone(adaptive));
        tokio::spawn(async move {
            let connected = match &client.inner.link {
                Some(link) => link.connect(Instant::now() + RETRY).await.is_ok(),
                None => false,
            };
            adaptive.retried(client.path(), connected);
        });
    }

    /// Runs the rest of a request whose service did not answer, `because` of this.
    async fn finish_alone(
        &self,
        choice: &Choice,
        encoded: Arc<Encoded>,
        started: Instant,
        deadline: Instant,
        because: Error,
    ) -> Result<(Values, Answer), Error> {
        let adaptive = self.inner.adaptive.as_ref();
        let Some(whole) = adaptive.and_then(|it| it.alone(self.manifest())) else {
            return Err(because);
        };
        let (client, from, stage) = (self.clone(), choice.cut, whole.stage);
        let bytes_sent = encoded.bytes();
        let run = tokio::task::spawn_blocking(move || {
            let manifest = client.manifest();
            let whole = manifest.cuts.iter().find(|cut| cut.stage == stage);
            let from = &manifest.cuts[from];
            let raw = |_: &Crossing| CodecSpec::Raw;
            whole.map(|whole| client.inner.device.run_on(from, &encoded, whole, raw))
        });
        let run = tokio::time::timeout_at(deadline.into(), run).await;
        // The device is late too: why the service did not answer is the better reason.
        let Ok(run) = run else { return Err(because) };
        let run = run.map_err(|error| Error::new(ErrorKind::Runtime, error))?;
        let Some(encoded) = run.transpose()? else {
            return Err(because);
        };
        let timings = Timings {
            edge: encoded.run,
            total: started.elapsed(),
            ..Timings::default()
        };
        let answer = Answer {
            outputs: Vec::new(),
            timings,
            cut: whole.id.clone(),
            codec: None,
            bytes_sent,
            bytes_received: 0,
            batch_size: 0,
        };
        Ok((encoded.local, answer))
    }

    /// Sends what was encoded, where the cut has a tail, and gives all values and an answer whose
    /// outputs are still to be filled in.
    pub(crate) async fn finish(
        &self,
        choice: &Choice,
        encoded: &Encoded,
        started: Instant,
        deadline: Instant,
        step: Option<Step>,
    ) -> Result<(Values, Answer), Error> {
        let cut = &self.manifest().cuts[choice.cut];
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
            codec: encoded.codec(),
            bytes_sent: encoded.bytes(),
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
            let reply = self.ask(link, choice, deadline, step, encoded).await?;
            let round_trip = sent.elapsed();
            let decoding = Instant::now();
            self.inner
                .device
                .decode(cut, &reply.tensors, &reply.payloads, &mut values)?;
            let time = Duration::from_micros;
            let server = &reply.timings;
            timings.wire = round_trip.saturating_sub(in_service(server));
            timings.queue = time(server.queue_us);
            timings.cloud = time(server.run_us);
            timings.decode = time(server.decode_us)
                .saturating_add(time(server.encode_us))
                .saturating_add(decoding.elapsed());
            answer.batch_size = server.batch_size;
            answer.bytes_received = reply
                .payloads
                .iter()
                .map(|payload| payload.len() as u64)
                .sum();
        } else if let (Some(adaptive), Some(option)) = (&self.inner.adaptive, choice.option) {
            adaptive.answered_here(option, encoded);
        }
        timings.total = started.elapsed();
        answer.timings = timings;
        Ok((values, answer))
    }

    /// Asks the service; what that took, or that it failed, is learnt.
    async fn ask(
        &self,
        link: &Link,
        choice: &Choice,
        deadline: Instant,
        step: Option<Step>,
        encoded: &Encoded,
    ) -> Result<Reply, Error> {
        let learning = self.inner.adaptive.as_ref().zip(choice.option);
        let learning = learning.map(|(it, option)| (it, it.begin(encoded.bytes()), option));
        let request = link.request(choice.cut, self.priority, deadline, step, encoded);
        let result = request.await;
        if let Some((adaptive, upload, option)) = learning {
            match &result {
                Ok(reply) => upload.answered(option, encoded, reply, link.path()),
                Err(error) if error.is_of_the_path() => adaptive.failed(link.path()),
                Err(_) => {}
            }
        }
        result
    }
}
