//! What a link is like.

use std::time::Duration;

use super::Loss;

/// A link: two directions, and what happens to both.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkOptions {
    /// What every random choice comes from; equal seeds and equal packets give equal fates.
    pub seed: u64,
    /// From the devices to the service.
    pub up: PipeOptions,
    /// From the service to the devices.
    pub down: PipeOptions,
    /// When nothing passes, from and to, since the start. Default: never.
    pub blackouts: Vec<(Duration, Duration)>,
    /// How often the NAT forgets its mappings: what the service sends to the old port is lost, and
    /// the device's next packet comes from a new one. Default: never.
    pub rebind_every: Option<Duration>,
    /// What a new mapping changes. Default: the port.
    pub rebind_to: RebindTo,
}

/// What the service sees change when a device's mapping is new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RebindTo {
    /// The port: a NAT mapping that was dropped.
    #[default]
    Port,
    /// Port and address, within 127.0.0.0/8: a device that went to another network. Needs a system
    /// that has all of these addresses, such as Linux, and a service on IPv4 loopback.
    Address,
}

/// One direction of a link. The default is a perfect one.
#[derive(Clone, Debug, PartialEq)]
pub struct PipeOptions {
    /// Bits per second, counted on UDP payload; `None` for no limit. Default: none.
    pub rate: Option<u64>,
    /// How long a packet is under way after it has been sent off. Default: 0.
    pub delay: Duration,
    /// Up to this is added to the delay, uniformly; it does not change the order. Default: 0.
    pub jitter: Duration,
    /// Default: none.
    pub loss: Loss,
    /// Default: none.
    pub reorder: Option<Reorder>,
    /// The chance that a packet arrives twice. Default: 0.
    pub duplicate: f64,
    /// What may wait for the transmitter; more is dropped. Default: 100 ms.
    pub queue: Queue,
    /// Largest UDP payload in bytes; larger ones vanish, as without fragmentation. Default: 1472,
    /// an Ethernet frame's over IPv4.
    pub mtu: usize,
}

/// Packets that arrive late, behind those that were sent after them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reorder {
    /// The chance of a packet.
    pub chance: f64,
    /// How much later it arrives.
    pub by: Duration,
}

/// The bound of what waits for the transmitter, the packet that it is sending included. A packet
/// that finds it full is dropped (tail drop). Without a rate nothing waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Bytes of UDP payload, the new packet included.
    Bytes(u64),
    /// How long the new packet would wait before it is sent.
    Time(Duration),
}

impl Default for PipeOptions {
    fn default() -> PipeOptions {
        PipeOptions {
            rate: None,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: Loss::None,
            reorder: None,
            duplicate: 0.0,
            queue: Queue::Time(Duration::from_millis(100)),
            mtu: 1472,
        }
    }
}

impl PipeOptions {
    /// So many bits per second, so far, with a queue of so long.
    fn of(rate: u64, delay_ms: u64, queue_ms: u64) -> PipeOptions {
        PipeOptions {
            rate: Some(rate),
            delay: Duration::from_millis(delay_ms),
            queue: Queue::Time(Duration::from_millis(queue_ms)),
            ..PipeOptions::default()
        }
    }
}

/// The rates up are the averages that the literature on splitting networks compares by (Hu et al.,
/// "Dynamic adaptive DNN surgery for inference acceleration on the edge", INFOCOM 2019); delays,
/// queues and the rates down are round numbers of our own.
impl LinkOptions {
    /// Nothing is limited, delayed or lost; the largest payload still is 1472 bytes.
    pub fn perfect() -> LinkOptions {
        LinkOptions::of(PipeOptions::default(), PipeOptions::default())
    }

    /// 18.88 Mbit/s up, 50 down, round trip 20 ms, queues of 100 ms.
    pub fn wifi() -> LinkOptions {
        let (up, down) = (18_880_000, 50_000_000);
        LinkOptions::of(PipeOptions::of(up, 10, 100), PipeOptions::of(down, 10, 100))
    }

    /// 5.85 Mbit/s up, 20 down, round trip 50 ms, queues of 200 ms.
    pub fn lte() -> LinkOptions {
        let (up, down) = (5_850_000, 20_000_000);
        LinkOptions::of(PipeOptions::of(up, 25, 200), PipeOptions::of(down, 25, 200))
    }

    /// 1.1 Mbit/s up, 4 down, round trip 100 ms, queues of 400 ms.
    pub fn three_g() -> LinkOptions {
        let (up, down) = (1_100_000, 4_000_000);
        LinkOptions::of(PipeOptions::of(up, 50, 400), PipeOptions::of(down, 50, 400))
    }

    /// The same in both directions.
    pub fn symmetric(pipe: PipeOptions) -> LinkOptions {
        LinkOptions::of(pipe.clone(), pipe)
    }

    fn of(up: PipeOptions, down: PipeOptions) -> LinkOptions {
        LinkOptions {
            seed: 1,
            up,
            down,
            blackouts: Vec::new(),
            rebind_every: None,
            rebind_to: RebindTo::Port,
        }
    }

    /// Applies the same change to both directions.
    pub fn both(mut self, change: impl Fn(&mut PipeOptions)) -> LinkOptions {
        change(&mut self.up);
        change(&mut self.down);
        self
    }

    /// Delay there and back, without jitter.
    pub fn round_trip(&self) -> Duration {
        self.up.delay + self.down.delay
    }
}
