//! What the link to a service is like, measured with small exchanges and real requests.
//!
//! The protocol has no frame for bytes that mean nothing, and needs none: requests of a bundle that
//! the service holds come in several sizes, by cut, codec and rows. What a request took, less what
//! the service says that it spent on it, grows with the bytes that went up; how fast the last bytes
//! of an answer follow the first is the way down. The values sent are zeros: no head runs.

mod fit;
mod requests;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use seamline_net::{ClientConnection, ContractHandle, OpenError, Request, TransportOptions};
use seamline_plan::{Bundle, Fingerprint, LinkModel, LinkSource, Radio, Rate, Spread};
use seamline_wire::ErrorCode;
use tokio::task::JoinSet;

use crate::error::{Error, ErrorKind};
use crate::link::{LinkOptions, Target, request_error};
use fit::{Exchange, Sample, Samples};
use requests::{Candidate, candidates};

/// Small exchanges before the first request.
const FIRST_EXCHANGES: usize = 10;

/// Requests at the same time, before anything counts: a window grows only when it is filled, and
/// packets are spread over a round trip by its size.
const WARM_UP: [usize; 4] = [1, 2, 4, 8];

/// The fewest rounds, however long they take: a large request overflows a slow link's queue at
/// times, and some that lost nothing are wanted.
const MIN_ROUNDS: usize = 6;

/// Exchanges where no request is sent.
const LONE_EXCHANGES: usize = 30;

/// How long one request may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// Requests up to this size do not fill a link's queue: packets that they lose were lost on the way.
const GENTLE_BYTES: u64 = 40 << 10;

/// How to measure a link.
#[derive(Clone, Debug)]
pub struct LinkProber {
    link: LinkOptions,
    bundle: Option<PathBuf>,
    time: Duration,
}

/// A link, measured.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkProbe {
    /// Small packets there and back.
    pub round_trip: Spread,
    /// Share of packets that were lost on the way up, 0 to 1.
    pub loss: f64,
    /// From the device to the service; `None` without a bundle.
    pub up: Option<ProbedRate>,
    /// From the service to the device; `None` without a bundle, or where its answers are too short.
    pub down: Option<ProbedRate>,
    /// Rounds of requests.
    pub rounds: usize,
}

/// A rate, measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbedRate {
    /// Bits per second.
    pub rate: Rate,
    /// The link is faster than the requests can tell: this is a lower bound.
    pub at_least: bool,
}

impl LinkProbe {
    /// The link for plans, called `name`; `None` where no request was sent. Where answers were too
    /// short for the way down, it is taken to be as fast as the way up.
    pub fn link(&self, name: &str, radio: Radio) -> Option<LinkModel> {
        let up = self.up?;
        Some(LinkModel {
            name: name.to_owned(),
            source: LinkSource::Probe,
            up: up.rate,
            down: self.down.unwrap_or(up).rate,
            round_trip: self.round_trip,
            loss: self.loss.min(0.99),
            radio,
        })
    }
}

impl LinkProber {
    /// A prober of the service at `address` (`HOST:PORT`), as the device `device` of the identity
    /// folder `identity`.
    pub fn new(address: &str, identity: &Path, device: &str) -> LinkProber {
        LinkProber {
            link: LinkOptions {
                address: address.to_owned(),
                identity: Some((identity.to_owned(), device.to_owned())),
                ..LinkOptions::default()
            },
            bundle: None,
            time: Duration::from_secs(4),
        }
    }

    /// The name on the service's certificate, where it is not the host of its address.
    #[must_use]
    pub fn server_name(mut self, name: &str) -> LinkProber {
        self.link.server_name = Some(name.to_owned());
        self
    }

    /// QUIC's settings.
    #[must_use]
    pub fn transport(mut self, transport: TransportOptions) -> LinkProber {
        self.link.transport = transport;
        self
    }

    /// A bundle that the service holds, whose requests measure the rates. Its manifest is all that
    /// is read. Without one only the round trip is measured.
    #[must_use]
    pub fn bundle(mut self, bundle: &Path) -> LinkProber {
        self.bundle = Some(bundle.to_owned());
        self
    }

    /// How long to measure. Default: 4 s. On a slow link it takes some requests longer.
    #[must_use]
    pub fn time(mut self, time: Duration) -> LinkProber {
        self.time = time;
        self
    }

    /// Measures.
    ///
    /// # Errors
    /// [`Error`]: no connection, a bundle that the service does not hold or that offers no request,
    /// or a request that failed.
    pub async fn run(&self) -> Result<LinkProbe, Error> {
        let bundle = |error| Error::new(ErrorKind::Bundle, error);
        let read = self.bundle.as_deref().map(Bundle::read_manifest);
        let read = read.transpose().map_err(bundle)?;
        let (fingerprint, model) = match &read {
            Some((manifest, fingerprint)) => (*fingerprint, manifest.model.name.as_str()),
            None => (Fingerprint::of(b""), ""),
        };
        let target = Target::new(self.link.clone(), fingerprint, model)?;
        let connection = target.connection().await?;
        let session = Session {
            fingerprint,
            model,
            contract: match &read {
                Some(_) => Some(target.open(&connection).await?),
                None => None,
            },
            opens_left: connection.limits().max_contracts.saturating_sub(2),
            connection,
            samples: Samples::default(),
        };
        let candidates = match &read {
            Some((manifest, _)) => candidates(manifest)?,
            None => Vec::new(),
        };
        session.measure(candidates, self.time).await
    }
}

/// A connection that is being measured.
struct Session<'a> {
    connection: ClientConnection,
    contract: Option<ContractHandle>,
    fingerprint: Fingerprint,
    model: &'a str,
    /// A service bounds the opens of a connection.
    opens_left: u32,
    samples: Samples,
}

impl Session<'_> {
    async fn measure(
        mut self,
        candidates: Vec<Candidate>,
        time: Duration,
    ) -> Result<LinkProbe, Error> {
        let result = self.rounds(candidates, time).await;
        self.connection
            .close(ErrorCode::Closed, "the link is measured");
        let patience = Duration::from_millis(500);
        let _ = tokio::time::timeout(patience, self.connection.wait_idle()).await;
        result?;
        Ok(self.samples.probe())
    }

    async fn rounds(&mut self, candidates: Vec<Candidate>, time: Duration) -> Result<(), Error> {
        for _ in 0..FIRST_EXCHANGES {
            self.exchange().await?;
        }
        if candidates.is_empty() {
            for _ in FIRST_EXCHANGES..LONE_EXCHANGES {
                self.exchange().await?;
            }
            return Ok(());
        }
        let chosen = self.choose(candidates, time).await?;
        self.fill_windows(&chosen.large, time).await?;
        self.fill_windows(&chosen.answer, time).await?;
        let started = Instant::now();
        while self.samples.rounds() < MIN_ROUNDS || started.elapsed() < time {
            self.exchange().await?;
            let small = self.request(&chosen.small).await?;
            let gentle = self.request(&chosen.gentle).await?;
            let large = self.request(&chosen.large).await?;
            let answer = self.request(&chosen.answer).await?;
            self.samples.add(small, gentle, large, answer);
        }
        Ok(())
    }

    /// A question of some hundred bytes and its answer; none once the service would take no more.
    async fn exchange(&mut self) -> Result<(), Error> {
        if self.opens_left == 0 {
            return Ok(());
        }
        self.opens_left -= 1;
        let before = self.connection.path();
        let started = Instant::now();
        match self.connection.open(self.fingerprint, self.model).await {
            // A refusal has come as far as an answer.
            Ok(_) | Err(OpenError::Refused(_)) => {}
            Err(error) => return Err(Error::new(ErrorKind::Disconnected, error)),
        }
        let us = started.elapsed().as_secs_f64() * 1e6;
        let sent = self.connection.path().sent_bytes - before.sent_bytes;
        self.samples.exchanges.push(Exchange { us, sent });
        Ok(())
    }

    /// The requests of a round: the smallest, the largest of those that do not fill a queue, the
    /// largest that can be sent often enough, the one with the longest answer.
    async fn choose(
        &mut self,
        candidates: Vec<Candidate>,
        time: Duration,
    ) -> Result<Chosen, Error> {
        let most = patience(time);
        let mut tried: Vec<(Candidate, Sample)> = Vec::new();
        let mut refused = None;
        for candidate in candidates {
            let first = Instant::now();
            match self.request(&candidate).await {
                Ok(sample) => tried.push((candidate, sample)),
                // More rows than the service joins, say.
                Err(error) if error.kind() == ErrorKind::Service => refused = Some(error),
                Err(error) => return Err(error),
            }
            if first.elapsed() > most {
                break;
            }
        }
        let small = tried.first();
        let gentle = tried
            .iter()
            .rfind(|(_, sample)| sample.sent <= GENTLE_BYTES);
        let answer = tried.iter().max_by_key(|(_, sample)| sample.answer_bytes);
        let (Some((small, _)), Some((large, _)), Some((answer, _))) = (small, tried.last(), answer)
        else {
            let none = || Error::text(ErrorKind::Bundle, "the service takes none of its requests");
            return Err(refused.unwrap_or_else(none));
        };
        Ok(Chosen {
            gentle: gentle.map_or(small, |(gentle, _)| gentle).clone(),
            small: small.clone(),
            large: large.clone(),
            answer: answer.clone(),
        })
    }

    /// Sends more and more requests at the same time, while they do not take too long.
    async fn fill_windows(&self, candidate: &Candidate, time: Duration) -> Result<(), Error> {
        for count in WARM_UP {
            let started = Instant::now();
            let mut requests = JoinSet::new();
            for _ in 0..count {
                let (connection, candidate) = (self.connection.clone(), candidate.clone());
                let contract = self.contract;
                requests.spawn(async move { ask(&connection, contract, &candidate).await });
            }
            while let Some(result) = requests.join_next().await {
                result.map_err(|error| Error::new(ErrorKind::Runtime, error))??;
            }
            if started.elapsed() > patience(time) {
                break;
            }
        }
        Ok(())
    }

    async fn request(&self, candidate: &Candidate) -> Result<Sample, Error> {
        ask(&self.connection, self.contract, candidate).await
    }
}

/// The longest that one step may take so that there are enough of them in `time`.
fn patience(time: Duration) -> Duration {
    (time / 8).max(Duration::from_millis(100))
}

async fn ask(
    connection: &ClientConnection,
    contract: Option<ContractHandle>,
    candidate: &Candidate,
) -> Result<Sample, Error> {
    let contract = contract
        .ok_or_else(|| Error::text(ErrorKind::Bundle, "no bundle was given to take requests of"))?;
    let request = Request::new(contract, candidate.cut, candidate.tensors.clone());
    let mut request = request.map_err(|error| Error::new(ErrorKind::Identity, error))?;
    request.deadline = Some(Instant::now() + DEADLINE);
    let before = connection.path();
    let reply = connection
        .request(request, candidate.payloads.clone())
        .await
        .map_err(request_error)?;
    let after = connection.path();
    let server = &reply.timings;
    let service = server.queue_us + server.decode_us + server.run_us + server.encode_us;
    let way = reply.times.send + reply.times.wait;
    let answer = reply.payloads.iter().map(|payload| payload.len() as u64);
    Ok(Sample {
        up_us: (way.as_secs_f64() * 1e6 - service as f64).max(0.0),
        down_us: reply.times.receive.as_secs_f64() * 1e6,
        answer_bytes: answer.sum(),
        sent: after.sent_bytes - before.sent_bytes,
        packets: after.sent_packets - before.sent_packets,
        lost: after.lost_packets - before.lost_packets,
    })
}

/// The requests of a round.
struct Chosen {
    small: Candidate,
    gentle: Candidate,
    large: Candidate,
    answer: Candidate,
}
