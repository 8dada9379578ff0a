//! A request of 300 KiB with a small answer over an emulated link, beside the link's own limit and
//! beside a bare quinn exchange of the same bytes.
//!
//! `cargo bench -p seamline-tests --bench link [-- --json] [--cases a,b] [--rounds N]
//! [--congestion cubic|bbr] [--initial-window BYTES] [--reordering PACKETS]`
//!
//! The service is in a process of its own, with its defaults. Ours and the peer reach it through a
//! link each, of the same options, over a connection that has been used: congestion windows have
//! grown and the path's MTU is known. Both are measured in turns, the one that begins changing from
//! round to round; before each of the two the link's random choices begin anew from the round's
//! seed. A round's ratio is ours over the peer's. The time is that of sending an encoded request
//! until its answer is there; head and encoding are not in it, the tail (some 0.1 ms) is.
//!
//! "The limit" is bytes / rate + round trip, of the payload alone: QUIC's own headers, 2.7 % at 1452
//! bytes, are on top of it. "Late" is how late the emulator was with packets on average, which adds
//! to each direction.

#![allow(missing_docs, reason = "a program, not a library")]
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

#[path = "../harness/mod.rs"]
mod harness;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use seamline_edge::{Client, Congestion, Prepared, TransportOptions};
use seamline_tests::link::{LinkOptions, LinkProxy, LinkStats, Loss, Queue, Reorder};
use seamline_tests::{cut, draw, middle, wire_model};

use harness::exchange::Exchange;
use harness::report::{Row, Samples};
use harness::service::{ServiceProcess, runtime, serve_if_asked};

/// 64 rows of so many f32: 300 KiB.
const COLUMNS: u32 = 1200;
/// Requests on each connection before the first that counts.
const WARM_UP: u64 = 8;
/// A request can take some seconds over 3G with loss.
const DEADLINE: Duration = Duration::from_secs(60);
/// Of bytes / rate + round trip, without loss.
const LIMIT: f64 = 1.08;
/// Of the bare exchange, at 2 % loss.
const PEER_LIMIT: f64 = 1.1;

/// Cases that [`LIMIT`] is promised for.
const ORDINARY: [&str; 3] = ["wifi", "lte", "3g"];
/// Cases that [`PEER_LIMIT`] is promised for.
const LOSSY: [&str; 3] = ["wifi-loss", "wifi-bursts", "lte-loss"];

struct Case {
    id: &'static str,
    name: &'static str,
    link: LinkOptions,
    rounds: u64,
    /// Every request is the first of a new connection; connecting is not measured.
    fresh: bool,
}

fn main() {
    if serve_if_asked() {
        return;
    }
    let json = harness::has("--json");
    let wanted = harness::argument("--cases");
    let rounds = harness::argument("--rounds").map(|rounds| rounds.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let bundle = bundle(folder.path());
    let service = ServiceProcess::start(folder.path(), bundle.parent().unwrap(), |config| {
        config.batching.max_batch_size = 1;
    });
    if !json {
        println!(
            "{:<26}{:>9}{:>9}{:>8}{:>8}{:>9}{:>8}{:>8}{:>8}{:>9}",
            "case", "ours", "limit", "ratio", "spread", "quinn", "ratio", "spread", "lost", "late"
        );
    }
    for mut case in cases() {
        if wanted
            .as_deref()
            .is_none_or(|wanted| wanted.split(',').any(|id| id == case.id))
        {
            case.rounds = rounds.unwrap_or(case.rounds);
            Sides::new(&case, &bundle, &service)
                .measure(&case)
                .report(&case, json);
        }
    }
}

fn cases() -> Vec<Case> {
    let lossy = |link: LinkOptions, loss| link.both(|pipe| pipe.loss = loss);
    let case = |id, name, link, rounds| Case {
        id,
        name,
        link,
        rounds,
        fresh: false,
    };
    let (random, bursts) = (Loss::Random(0.02), Loss::bursts(0.02, 4.0));
    let jittery = LinkOptions::wifi().both(|pipe| {
        pipe.jitter = Duration::from_millis(5);
        pipe.reorder = Some(Reorder {
            chance: 0.01,
            by: Duration::from_millis(3),
        });
    });
    let shallow =
        LinkOptions::wifi().both(|pipe| pipe.queue = Queue::Time(Duration::from_millis(20)));
    vec![
        case("wifi", "Wi-Fi", LinkOptions::wifi(), 40),
        case("lte", "LTE", LinkOptions::lte(), 20),
        case("3g", "3G", LinkOptions::three_g(), 7),
        case(
            "wifi-loss",
            "Wi-Fi, 2 % loss",
            lossy(LinkOptions::wifi(), random),
            60,
        ),
        case(
            "wifi-bursts",
            "Wi-Fi, 2 % in bursts of 4",
            lossy(LinkOptions::wifi(), bursts),
            60,
        ),
        case(
            "lte-loss",
            "LTE, 2 % loss",
            lossy(LinkOptions::lte(), random),
            30,
        ),
        case("wifi-jitter", "Wi-Fi, jitter, reordering", jittery, 30),
        case("wifi-shallow", "Wi-Fi, queue of 20 ms", shallow, 30),
        Case {
            fresh: true,
            ..case(
                "wifi-first",
                "Wi-Fi, first request",
                LinkOptions::wifi(),
                20,
            )
        },
        Case {
            fresh: true,
            ..case("lte-first", "LTE, first request", LinkOptions::lte(), 12)
        },
    ]
}

fn bundle(folder: &Path) -> PathBuf {
    let bundles = folder.join("bundles");
    std::fs::create_dir(&bundles).unwrap();
    let bundle = bundles.join("wire.seam");
    let model = wire_model(COLUMNS, 1);
    cut(&model, &bundle, &[&middle(&model).id], |_| {});
    bundle
}

/// What is measured in turns.
struct Sides {
    tokio: tokio::runtime::Runtime,
    client: Client,
    prepared: Prepared,
    ours: LinkProxy,
    exchange: Exchange,
    peer: LinkProxy,
    payload: Bytes,
    back: u64,
    identity: PathBuf,
    fresh: bool,
}

impl Sides {
    fn new(case: &Case, bundle: &Path, service: &ServiceProcess) -> Sides {
        let start = |address| LinkProxy::start(address, case.link.clone()).unwrap();
        let ours = start(service.addresses.service);
        let peer = start(service.addresses.exchange);
        // As the exchange has it.
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (client, prepared, answer) = tokio.block_on(async {
            let client = Client::builder(bundle)
                .runtime(runtime(false))
                .cloud(&ours.addr().to_string())
                .identity_folder(&service.identity, "device")
                .codec("raw")
                .transport(transport())
                .deadline(DEADLINE)
                .build()
                .await
                .unwrap();
            let inputs = draw(&wire_model(COLUMNS, 1), 1);
            let prepared = client.prepare(inputs).await.unwrap();
            let answer = client.send(prepared.clone()).await.unwrap();
            (client, prepared, answer)
        });
        assert_eq!(answer.bytes_sent, 300 << 10);
        Sides {
            tokio,
            client,
            prepared,
            ours,
            exchange: Exchange::connect(&service.identity, peer.addr()),
            peer,
            payload: vec![7u8; usize::try_from(answer.bytes_sent).unwrap()].into(),
            back: answer.bytes_received,
            identity: service.identity.clone(),
            fresh: case.fresh,
        }
    }

    fn ours(&self, seed: u64) -> f64 {
        let prepared = self.prepared.clone();
        let client = if self.fresh {
            let connect = self.client.with_own_connection();
            self.tokio.block_on(connect).unwrap()
        } else {
            self.client.clone()
        };
        self.ours.reseed(seed);
        timed(|| {
            self.tokio.block_on(client.send(prepared)).unwrap();
        })
    }

    fn peer(&self, seed: u64) -> f64 {
        let fresh = self
            .fresh
            .then(|| Exchange::connect(&self.identity, self.peer.addr()));
        self.peer.reseed(seed);
        let exchange = fresh.as_ref().unwrap_or(&self.exchange);
        timed(|| exchange.run(&self.payload, self.back))
    }

    fn measure(&self, case: &Case) -> Figures {
        for round in 0..WARM_UP {
            self.ours(round);
            self.peer(round);
        }
        let mut figures = Figures {
            limit: limit_ms(case, self.payload.len()),
            ..Figures::default()
        };
        for round in 0..case.rounds {
            let seed = WARM_UP + round;
            let (ours, peer) = if round % 2 == 0 {
                let ours = self.ours(seed);
                (ours, self.peer(seed))
            } else {
                let peer = self.peer(seed);
                (self.ours(seed), peer)
            };
            figures.add(ours, peer);
        }
        figures.links = [self.ours.stats(), self.peer.stats()];
        figures
    }
}

/// The product's own, unless the command line says otherwise.
fn transport() -> TransportOptions {
    let defaults = TransportOptions::default();
    let congestion = match harness::argument("--congestion").as_deref() {
        None => defaults.congestion,
        Some("cubic") => Congestion::Cubic,
        Some("bbr") => Congestion::Bbr,
        Some(other) => panic!("--congestion is cubic or bbr, not {other}"),
    };
    let number = |flag| harness::argument(flag).map(|number| number.parse::<u32>().unwrap());
    TransportOptions {
        congestion,
        initial_window: number("--initial-window").map_or(defaults.initial_window, u64::from),
        reordering: number("--reordering").unwrap_or(defaults.reordering),
        // A loopback address, but not a loopback's packets.
        mtu_max: Some(1452),
        ..defaults
    }
}

fn timed(call: impl FnOnce()) -> f64 {
    let started = Instant::now();
    call();
    started.elapsed().as_secs_f64() * 1e3
}

fn limit_ms(case: &Case, bytes: usize) -> f64 {
    let rate = case.link.up.rate.unwrap() as f64;
    bytes as f64 * 8e3 / rate + case.link.round_trip().as_secs_f64() * 1e3
}

#[derive(Default)]
struct Figures {
    limit: f64,
    ours: Samples,
    peer: Samples,
    to_limit: Samples,
    to_peer: Samples,
    /// Ours and the peer's.
    links: [LinkStats; 2],
}

impl Figures {
    fn add(&mut self, ours: f64, peer: f64) {
        self.ours.add(ours);
        self.peer.add(peer);
        self.to_limit.add(ours / self.limit);
        self.to_peer.add(ours / peer);
    }

    fn report(&self, case: &Case, json: bool) {
        if json {
            let row = |peer: &str, peer_value, ratio: &Samples, limit| Row {
                bench: "link",
                case: format!("{}, 300 KiB up", case.name),
                ours: self.ours.median(),
                peer: peer.into(),
                peer_value,
                unit: "ms",
                ratio: ratio.median(),
                limit,
                spread: ratio.spread(),
            };
            let limit = ORDINARY.contains(&case.id).then_some(LIMIT);
            row(
                "bytes / rate + round trip",
                self.limit,
                &self.to_limit,
                limit,
            )
            .print();
            let limit = LOSSY.contains(&case.id).then_some(PEER_LIMIT);
            row("bare quinn", self.peer.median(), &self.to_peer, limit).print();
            return;
        }
        let [ours, peer] = &self.links;
        let lost = |link: &LinkStats| link.up.lost + link.up.queue_full;
        println!(
            "{:<26}{:>9.1}{:>9.1}{:>8.3}{:>6.1} %{:>9.1}{:>8.3}{:>6.1} %{:>4}/{:<4}{:>7.0} us",
            case.name,
            self.ours.median(),
            self.limit,
            self.to_limit.median(),
            self.to_limit.spread() * 100.0,
            self.peer.median(),
            self.to_peer.median(),
            self.to_peer.spread() * 100.0,
            lost(ours),
            lost(peer),
            ours.late_mean.as_secs_f64() * 1e6,
        );
    }
}
