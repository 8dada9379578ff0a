//! How QUIC is tuned.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::congestion::{BbrConfig, CubicConfig};
use quinn::{EndpointConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt};

/// What decides how much may be in flight on the path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// RFC 9438. Backs off on loss; right for wired and most Wi-Fi links.
    #[default]
    Cubic,
    /// Models bandwidth and round trip instead of reacting to loss. Try it where packets are lost at
    /// random: at 2 % loss a request took less than half of Cubic's time (BENCHMARKS.md, "Over a
    /// link"). Where the bottleneck's queue is short it overflows it, to the cost of others; on
    /// loopback and with small socket buffers it is much slower than Cubic. quinn calls its
    /// implementation experimental.
    Bbr,
}

/// How QUIC is tuned. The defaults suit a device on Wi-Fi or cellular and a service in a data
/// centre; both sides choose their own.
#[derive(Clone, Debug, PartialEq)]
pub struct TransportOptions {
    /// Default: [`Congestion::Cubic`].
    pub congestion: Congestion,
    /// How much may be in flight on a new connection before anything is acknowledged. Of Cubic only:
    /// quinn's BBR starts with 240,000 bytes and does not find the path's rate from less.
    ///
    /// Unit: bytes. Default: 46,464, which is 32 packets, as large deployments of QUIC have it (Langley
    /// et al., "The QUIC transport protocol", SIGCOMM 2017); RFC 9002 recommends 14,720. Bound: at
    /// least two packets of 1200 bytes. It doubles each round trip until the path is full, so it
    /// decides how long the first request of a connection takes. Cost: sent at once, it can fill
    /// the queue of a slow link; lower it where many devices share one.
    pub initial_window: u64,
    /// How many packets sent later must be acknowledged before one counts as lost for that. By
    /// time it counts as lost after 9/8 of a round trip in any case.
    ///
    /// Unit: packets. Default: 16, which at 18.88 Mbit/s forgives a packet that is 10 ms late; RFC
    /// 9002 recommends 3, with which Cubic takes reordering for loss and slows down. Bound: at least
    /// 3. Cost: a loss is found up to 1/8 of a round trip later.
    pub reordering: u32,
    /// How much the peer may send on one stream before it is read.
    ///
    /// Unit: bytes. Default: 8 MiB. Bound: 2^62. Cost: memory per stream with a fast peer and a
    /// slow reader. One stream reaches at most window / round trip: 8 MiB at 100 ms is
    /// 670 Mbit/s.
    pub stream_window: u64,
    /// How much the peer may send on all streams together before it is read.
    ///
    /// Unit: bytes. Default: 32 MiB. Bound: 2^62. Cost: memory per connection at worst. Lower it
    /// where thousands of devices connect.
    pub connection_window: u64,
    /// How much may wait here for the peer's acknowledgement, all streams together.
    ///
    /// Unit: bytes. Default: 16 MiB. Cost: memory per connection at worst.
    pub send_window: u64,
    /// Kernel buffer of the UDP socket, each direction.
    ///
    /// Unit: bytes. Default: 4 MiB. Bound: the kernel's (`net.core.rmem_max`, `wmem_max`), which
    /// cuts it silently. Cost: kernel memory per socket, not per connection. Too small a one
    /// drops bursts: answers of 300 KiB come in one.
    pub socket_buffer: usize,
    /// Silence after which a connection counts as lost.
    ///
    /// Default: 30 s. Bound: the lesser of both sides' holds. Shorter finds a dead peer sooner;
    /// longer survives longer radio gaps.
    pub idle_timeout: Duration,
    /// How often an idle connection is kept alive; `None` for never.
    ///
    /// Default: 10 s on both sides. Must be well below `idle_timeout` and below the lifetime of
    /// a NAT mapping (often 30 s). Cost: a small packet and a radio wake-up each time.
    pub keep_alive: Option<Duration>,
    /// Largest UDP payload that path-MTU discovery tries, and that is taken from the peer; `None`
    /// takes 6000 bytes and tries as much on loopback, 1452 elsewhere.
    ///
    /// Unit: bytes. Bound: 1200 to 65,527. Raise it on networks with jumbo frames. Above about
    /// 6500, ten segments of segmentation offload no longer fit a 64 KiB send, and throughput
    /// collapses.
    pub mtu_max: Option<u16>,
    /// The round trip assumed before one is measured.
    ///
    /// Default: 100 ms. It sets the first retransmission of a connection's first packets. Lower
    /// it in a data centre, raise it for satellites.
    pub initial_rtt: Duration,
}

impl Default for TransportOptions {
    fn default() -> TransportOptions {
        TransportOptions {
            congestion: Congestion::Cubic,
            initial_window: 46_464,
            reordering: 16,
            stream_window: 8 << 20,
            connection_window: 32 << 20,
            send_window: 16 << 20,
            socket_buffer: 4 << 20,
            idle_timeout: Duration::from_secs(30),
            keep_alive: Some(Duration::from_secs(10)),
            mtu_max: None,
            initial_rtt: Duration::from_millis(100),
        }
    }
}

const REORDERING_MIN: u32 = 3;
const MTU_MAX_LOOPBACK: u16 = 6000;
const MTU_MAX: u16 = 1452;
const MTU_MIN: u16 = 1200;
/// What every peer may send: an Ethernet frame's payload.
const PAYLOAD_MIN: u16 = 1472;

impl TransportOptions {
    /// The quinn configuration of a socket. The peer's path-MTU discovery goes no further than what
    /// this side says that it takes; quinn's default would keep it at 1472 bytes.
    pub(crate) fn endpoint_config(&self) -> EndpointConfig {
        let mut config = EndpointConfig::default();
        let most = self.mtu_max.unwrap_or(MTU_MAX_LOOPBACK).max(PAYLOAD_MIN);
        // Fails below 1200 and above 65,527; quinn's default stays then.
        if let Err(error) = config.max_udp_payload_size(most) {
            tracing::warn!(%error, most, "mtu_max is out of bounds");
        }
        config
    }

    /// The quinn configuration for `peer`, who may open `streams` bidirectional streams at a time.
    pub(crate) fn to_quinn(&self, peer: SocketAddr, streams: u32) -> Arc<TransportConfig> {
        let mut config = TransportConfig::default();
        let mut mtu = MtuDiscoveryConfig::default();
        let automatic = if peer.ip().to_canonical().is_loopback() {
            MTU_MAX_LOOPBACK
        } else {
            MTU_MAX
        };
        mtu.upper_bound(self.mtu_max.unwrap_or(automatic).max(MTU_MIN));
        config
            .max_concurrent_bidi_streams(VarInt::from_u32(streams))
            .max_concurrent_uni_streams(VarInt::from_u32(0))
            .datagram_receive_buffer_size(None)
            .stream_receive_window(varint(self.stream_window))
            .receive_window(varint(self.connection_window))
            .send_window(self.send_window)
            .keep_alive_interval(self.keep_alive)
            .initial_rtt(self.initial_rtt)
            .packet_threshold(self.reordering.max(REORDERING_MIN))
            .mtu_discovery_config(Some(mtu))
            // Beyond 2^62 ms a timeout is none.
            .max_idle_timeout(IdleTimeout::try_from(self.idle_timeout).ok());
        match self.congestion {
            Congestion::Cubic => {
                let mut cubic = CubicConfig::default();
                cubic.initial_window(self.initial_window.max(2 * u64::from(MTU_MIN)));
                config.congestion_controller_factory(Arc::new(cubic))
            }
            Congestion::Bbr => config.congestion_controller_factory(Arc::new(BbrConfig::default())),
        };
        Arc::new(config)
    }
}

fn varint(value: u64) -> VarInt {
    VarInt::from_u64(value).unwrap_or(VarInt::MAX)
}
