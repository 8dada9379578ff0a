//! The link in real time, between sockets.
//!
//! A tokio runtime on a thread of its own receives. Another thread sends what is due: tokio's timers
//! are no finer than a millisecond, and a packet of 1452 bytes takes 0.6 ms at 18.88 Mbit/s. When a
//! packet is due follows from when it came and from the rate, never from when the one before it
//! was really sent, so that a late wake-up delays some packets and does not slow the link.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::AbortHandle;

use super::{Arrival, Departure, Link, LinkOptions, PipeOptions, PipeStats, RebindTo};

/// Larger than any bandwidth-delay product here, so that only the link itself drops packets.
const SOCKET_BUFFER: usize = 4 << 20;
const LARGEST: usize = 65_536;

/// What became of the packets, and how punctual the proxy was.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkStats {
    /// From the devices to the service.
    pub up: PipeStats,
    /// From the service to the devices.
    pub down: PipeStats,
    /// How late packets were sent, on average. It is the proxy's own error: a busy machine adds it
    /// to the delay.
    pub late_mean: Duration,
    /// The latest packet of all.
    pub late_max: Duration,
}

/// A link in front of a service; it ends when dropped.
pub struct LinkProxy {
    addr: SocketAddr,
    options: LinkOptions,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
    sender: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    /// Something may be due sooner than the sender thinks, or it is to stop.
    changed: Condvar,
}

struct State {
    link: Link,
    clients: HashMap<SocketAddr, usize>,
    addresses: Vec<SocketAddr>,
    lateness: Lateness,
    stopped: bool,
}

#[derive(Clone, Copy, Default)]
struct Lateness {
    sum: Duration,
    packets: u32,
    max: Duration,
}

impl LinkProxy {
    /// Listens on a free port of loopback for devices of `service`. It needs no runtime of the
    /// caller's.
    ///
    /// # Errors
    /// The operating system's.
    pub fn start(service: SocketAddr, options: LinkOptions) -> io::Result<LinkProxy> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("link-receive")
            .enable_io()
            .build()?;
        let front = Arc::new(bind(SocketAddr::from(([127, 0, 0, 1], 0)))?);
        let addr = front.local_addr()?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                link: Link::new(Instant::now(), &options),
                clients: HashMap::new(),
                addresses: Vec::new(),
                lateness: Lateness::default(),
                stopped: false,
            }),
            changed: Condvar::new(),
        });
        let receiving = front.try_clone()?;
        runtime.spawn(receive_from_clients(receiving, Arc::clone(&shared)));
        let sender = Sender {
            shared: Arc::clone(&shared),
            receivers: runtime.handle().clone(),
            service,
            rebind_to: options.rebind_to,
            front,
            backs: HashMap::new(),
        };
        let thread = std::thread::Builder::new().name("link-send".into());
        Ok(LinkProxy {
            addr,
            options,
            shared,
            runtime: Some(runtime),
            sender: Some(thread.spawn(move || sender.run())?),
        })
    }

    /// Where devices connect.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What it was started with; [`LinkProxy::change`] does not change this.
    pub fn options(&self) -> &LinkOptions {
        &self.options
    }

    /// Drops all NAT mappings: what the service sends from now on is lost, until the device sends
    /// something, which then comes from another port.
    pub fn rebind(&self) {
        self.shared.state.lock().link.rebind();
    }

    /// Begins or ends a blackout.
    pub fn set_dark(&self, dark: bool) {
        self.shared.state.lock().link.set_dark(Instant::now(), dark);
    }

    /// Begins the random choices anew.
    pub fn reseed(&self, seed: u64) {
        self.shared.state.lock().link.reseed(seed);
    }

    /// Changes what the directions are like for packets from now on.
    pub fn change(&self, up: PipeOptions, down: PipeOptions, seed: u64) {
        self.shared.state.lock().link.change(up, down, seed);
    }

    /// Waits until the packets so far are of this kind; fails after 20 s.
    pub async fn wait_until(&self, what: &str, is: impl Fn(&LinkStats) -> bool) {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let stats = self.stats();
            if is(&stats) {
                return;
            }
            assert!(Instant::now() < until, "not {what} after 20 s: {stats:?}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// What became of the packets so far.
    pub fn stats(&self) -> LinkStats {
        let state = self.shared.state.lock();
        let (up, down) = state.link.stats();
        let Lateness { sum, packets, max } = state.lateness;
        LinkStats {
            up,
            down,
            late_mean: sum / packets.max(1),
            late_max: max,
        }
    }
}

impl Drop for LinkProxy {
    fn drop(&mut self) {
        self.shared.state.lock().stopped = true;
        self.shared.changed.notify_all();
        if let Some(sender) = self.sender.take() {
            // A sender that panicked has said so on stderr.
            let _ = sender.join();
        }
        if let Some(runtime) = self.runtime.take() {
            // May run within another runtime, where waiting for this one is not allowed.
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    fn handle(&self, arrival: impl FnOnce(&mut State) -> Arrival) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let arrival = arrival(&mut state);
        let before = state.link.poll_timeout();
        state.link.handle(now, arrival);
        let sooner = state.link.poll_timeout() != before;
        drop(state);
        if sooner {
            self.changed.notify_one();
        }
    }
}

impl State {
    /// The number of the device at this address.
    fn client(&mut self, address: SocketAddr) -> usize {
        let next = self.addresses.len();
        let client = *self.clients.entry(address).or_insert(next);
        if client == next {
            self.addresses.push(address);
        }
        client
    }
}

async fn receive_from_clients(socket: std::net::UdpSocket, shared: Arc<Shared>) {
    receive(socket, |address, payload| {
        shared.handle(|state| Arrival::FromClient {
            client: state.client(address),
            payload,
        });
    })
    .await;
}

async fn receive_from_service(
    socket: std::net::UdpSocket,
    shared: Arc<Shared>,
    client: usize,
    mapping: u64,
) {
    receive(socket, |_, payload| {
        shared.handle(|_| Arrival::FromService {
            client,
            mapping,
            payload,
        });
    })
    .await;
}

async fn receive(socket: std::net::UdpSocket, take: impl Fn(SocketAddr, Bytes)) {
    let socket = UdpSocket::from_std(socket).expect("the proxy's runtime does IO");
    let mut buffer = vec![0; LARGEST];
    loop {
        // An error is of one packet sent before (its port is closed): others may still come.
        if let Ok((bytes, from)) = socket.recv_from(&mut buffer).await {
            take(from, Bytes::copy_from_slice(&buffer[..bytes]));
        }
    }
}

/// Sends what is due.
struct Sender {
    shared: Arc<Shared>,
    receivers: Handle,
    service: SocketAddr,
    rebind_to: RebindTo,
    front: Arc<std::net::UdpSocket>,
    /// Each device's port towards the service.
    backs: HashMap<usize, Back>,
}

struct Back {
    mapping: u64,
    socket: std::net::UdpSocket,
    receiving: AbortHandle,
}

impl Drop for Back {
    fn drop(&mut self) {
        self.receiving.abort();
    }
}

impl Sender {
    fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let mut due = Vec::new();
        let mut state = shared.state.lock();
        while !state.stopped {
            let now = Instant::now();
            while let Some((at, departure)) = state.link.poll_transmit(now) {
                state.lateness.add(now - at);
                let address = match &departure {
                    Departure::ToService { .. } => self.service,
                    Departure::ToClient { client, .. } => state.addresses[*client],
                };
                due.push((address, departure));
            }
            if !due.is_empty() {
                drop(state);
                for (address, departure) in due.drain(..) {
                    self.send(address, departure);
                }
                state = shared.state.lock();
                continue;
            }
            match state.link.poll_timeout() {
                Some(at) => {
                    shared.changed.wait_until(&mut state, at);
                }
                None => shared.changed.wait(&mut state),
            }
        }
    }

    fn send(&mut self, address: SocketAddr, departure: Departure) {
        let (socket, payload) = match &departure {
            Departure::ToService {
                client,
                mapping,
                payload,
            } => (&self.back(*client, *mapping).socket, payload),
            Departure::ToClient { payload, .. } => (&*self.front, payload),
        };
        // A device or service that is gone is no failure of the link.
        let _ = socket.send_to(payload, address);
    }

    /// The device's port, made anew where its mapping is.
    fn back(&mut self, client: usize, mapping: u64) -> &Back {
        if self
            .backs
            .get(&client)
            .is_none_or(|back| back.mapping != mapping)
        {
            let socket = bind(self.back_address(mapping)).expect("a port towards the service");
            let receiving = socket.try_clone().expect("another handle to a socket");
            let receive =
                receive_from_service(receiving, Arc::clone(&self.shared), client, mapping);
            let back = Back {
                mapping,
                socket,
                receiving: self.receivers.spawn(receive).abort_handle(),
            };
            self.backs.insert(client, back);
        }
        &self.backs[&client]
    }

    fn back_address(&self, mapping: u64) -> SocketAddr {
        let ip: IpAddr = match (self.rebind_to, self.service.ip()) {
            (RebindTo::Address, IpAddr::V4(_)) => {
                let host = u8::try_from(1 + mapping % 250).unwrap_or(1);
                Ipv4Addr::new(127, 0, 0, host).into()
            }
            (RebindTo::Address | RebindTo::Port, ip) => ip,
        };
        SocketAddr::new(ip, 0)
    }
}

impl Lateness {
    fn add(&mut self, late: Duration) {
        self.sum += late;
        self.packets += 1;
        self.max = self.max.max(late);
    }
}

/// A socket that does not block.
fn bind(address: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    // The kernel may allow less; the link then drops what does not fit.
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}
