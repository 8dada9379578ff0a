//! What a link is like, for plans: presets, and the state of one at a moment.

use serde::{Deserialize, Serialize};

use crate::Spread;

/// Bytes on the wire for each byte of payload: QUIC's short header, a stream frame's and the AEAD
/// tag, some 32 bytes in a packet of 1,452.
const PACKET_OVERHEAD: f64 = 1.022;

/// Bytes of a request's or a reply's header, its frame and acknowledgements.
const HEADER_BYTES: f64 = 160.0;

/// The largest share of lost packets that is taken for a link.
const MAX_LOSS: f64 = 0.99;

/// Rates that are taken for one, in bits per second.
const RATES: std::ops::RangeInclusive<f64> = 1.0..=1e14;

/// Powers that are taken for one, in watts.
const POWERS: std::ops::RangeInclusive<f64> = 0.0..=1e6;

/// Payload of a packet.
const PACKET_BYTES: f64 = 1420.0;
/// Bytes in flight before anything is acknowledged, as both ends start by default.
const FIRST_WINDOW: f64 = 46_464.0;

/// A link as a plan takes it: what is usual, and what a bad moment is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkModel {
    /// Its name in tables and reports.
    pub name: String,
    /// Where the figures come from.
    pub source: LinkSource,
    /// From the device to the service.
    pub up: Rate,
    /// From the service to the device.
    pub down: Rate,
    /// Round trip of a small packet.
    pub round_trip: Spread,
    /// Share of packets that are lost, 0 to 0.99.
    pub loss: f64,
    /// What the device's radio takes.
    pub radio: Radio,
}

/// Where a link's figures come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkSource {
    /// A name: figures of the literature.
    Preset,
    /// Given on the command line.
    Given,
    /// `seamline-edge probe`.
    Probe,
    /// A recording.
    Trace,
}

/// How fast one direction is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Median, in bits per second of UDP payload.
    pub p50_bps: f64,
    /// What it exceeds 95 % of the time.
    pub p5_bps: f64,
}

impl Rate {
    /// A rate that never varies.
    pub const fn exactly(bps: f64) -> Rate {
        Rate {
            p50_bps: bps,
            p5_bps: bps,
        }
    }
}

/// Power of a device's radio while it sends or receives: `base + slope × rate`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Radio {
    /// Watts while it is active.
    pub base_w: f64,
    /// Watts for each Mbit/s up.
    pub up_w_per_mbps: f64,
    /// Watts for each Mbit/s down.
    pub down_w_per_mbps: f64,
}

/// Presets by name. Rates up of 3G, LTE and Wi-Fi are the averages that the literature on splitting
/// networks compares by (Hu et al., "Dynamic adaptive DNN surgery for inference acceleration on the
/// edge", INFOCOM 2019); rates down, round trips, 5G and Ethernet are round numbers of our own.
/// Radios of 3G, LTE and Wi-Fi: Huang et al., "A close examination of performance and power
/// characteristics of 4G LTE networks", MobiSys 2012, table 4; 5G is taken for LTE's radio, a cable
/// takes nothing.
const PRESETS: [(&str, f64, f64, f64, Radio); 5] = [
    ("3g", 1.1, 4.0, 100.0, radio(0.818, 0.869, 0.122)),
    ("lte", 5.85, 20.0, 50.0, radio(1.288, 0.438, 0.052)),
    ("wifi", 18.88, 50.0, 20.0, radio(0.133, 0.283, 0.137)),
    ("5g", 60.0, 300.0, 15.0, radio(1.288, 0.438, 0.052)),
    ("ethernet", 1000.0, 1000.0, 1.0, radio(0.0, 0.0, 0.0)),
];

const fn radio(base_w: f64, up_w_per_mbps: f64, down_w_per_mbps: f64) -> Radio {
    Radio {
        base_w,
        up_w_per_mbps,
        down_w_per_mbps,
    }
}

/// How much a preset wanders: its rate exceeds this share of the median 95 % of the time, and its
/// round trip stays below this multiple. A cable does not.
const PRESET_SPREAD: (f64, f64) = (0.6, 1.5);

impl LinkModel {
    /// The names of the presets.
    pub fn presets() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|(name, ..)| *name)
    }

    /// The preset called `name`.
    pub fn preset(name: &str) -> Option<LinkModel> {
        let &(name, up, down, round_trip_ms, radio) =
            PRESETS.iter().find(|(known, ..)| *known == name)?;
        let (slow, long) = if name == "ethernet" {
            (1.0, 1.0)
        } else {
            PRESET_SPREAD
        };
        let rate = |mbps: f64| Rate {
            p50_bps: mbps * 1e6,
            p5_bps: mbps * 1e6 * slow,
        };
        Some(LinkModel {
            name: name.to_owned(),
            source: LinkSource::Preset,
            up: rate(up),
            down: rate(down),
            round_trip: Spread {
                p50_us: round_trip_ms * 1e3,
                p95_us: round_trip_ms * 1e3 * long,
                samples: 0,
            },
            loss: 0.0,
            radio,
        })
    }

    /// The link at a usual moment.
    pub fn usual(&self) -> LinkState {
        LinkState {
            up_bps: self.up.p50_bps,
            down_bps: self.down.p50_bps,
            round_trip_us: self.round_trip.p50_us,
            loss: self.loss,
        }
    }

    /// The link at a bad moment, the worst of twenty.
    pub fn bad(&self) -> LinkState {
        LinkState {
            up_bps: self.up.p5_bps,
            down_bps: self.down.p5_bps,
            round_trip_us: self.round_trip.p95_us,
            loss: self.loss,
        }
    }

    /// Why this cannot be a link; `None` where it can.
    pub fn problem(&self) -> Option<String> {
        for (name, rate) in [("up", self.up), ("down", self.down)] {
            let is_rate = |bps: f64| RATES.contains(&bps);
            if !(is_rate(rate.p50_bps) && is_rate(rate.p5_bps) && rate.p5_bps <= rate.p50_bps) {
                return Some(format!(
                    "`{name}` has p50_bps {} and p5_bps {}; expected rates of 1 to 1e14, the \
                     second not above the first",
                    rate.p50_bps, rate.p5_bps
                ));
            }
        }
        if let Some(problem) = self.round_trip.problem() {
            return Some(format!("`round_trip`: {problem}"));
        }
        if !(0.0..=MAX_LOSS).contains(&self.loss) {
            return Some(format!("`loss` is {}; expected 0 to {MAX_LOSS}", self.loss));
        }
        let Radio {
            base_w,
            up_w_per_mbps,
            down_w_per_mbps,
        } = self.radio;
        let is_power = |watts: f64| POWERS.contains(&watts);
        if ![base_w, up_w_per_mbps, down_w_per_mbps]
            .into_iter()
            .all(is_power)
        {
            return Some("`radio` has a power below 0, or none at all".into());
        }
        None
    }
}

/// A link at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkState {
    /// Bits per second of UDP payload, from the device to the service.
    pub up_bps: f64,
    /// From the service to the device.
    pub down_bps: f64,
    /// Round trip of a small packet, in microseconds.
    pub round_trip_us: f64,
    /// Share of packets that are lost, 0 to 0.99.
    pub loss: f64,
}

impl LinkState {
    /// Microseconds until `bytes` of payload have arrived in the service.
    pub fn send_us(&self, bytes: u64) -> f64 {
        self.one_way_us(bytes, self.up_bps)
    }

    /// Microseconds until an answer of `bytes` has arrived on the device.
    pub fn answer_us(&self, bytes: u64) -> f64 {
        self.one_way_us(bytes, self.down_bps)
    }

    /// On a warm connection, whose window has grown to what is usually sent: half a round trip, the
    /// bytes at the link's rate, and what loss costs. Where little more than a first window is sent,
    /// the window does not grow, as its owner has nothing more to send, and the rest waits for an
    /// acknowledgement. Lost packets are sent again; where any is lost among
    /// the last, a round trip is waited for it. A lossy link is never faster than `1.22 × packet /
    /// (round trip × √loss)` (M. Mathis et al., 1997).
    fn one_way_us(&self, bytes: u64, bps: f64) -> f64 {
        let bytes = bytes as f64;
        let on_wire = bytes * PACKET_OVERHEAD + HEADER_BYTES;
        let mut rate = bps / 8e6;
        let mut wait = 0.0;
        if (FIRST_WINDOW..2.0 * FIRST_WINDOW).contains(&on_wire) {
            wait = (self.round_trip_us - FIRST_WINDOW / rate).max(0.0);
        }
        if self.loss > 0.0 {
            let packets = (bytes / PACKET_BYTES).ceil().max(1.0);
            wait += (1.0 - (1.0 - self.loss).powf(packets)) * self.round_trip_us;
            let bound = 1.22 * PACKET_BYTES / (self.round_trip_us.max(1.0) * self.loss.sqrt());
            // What fits into a first window is not held back by it.
            if packets > 32.0 {
                rate = rate.min(bound);
            }
            rate *= 1.0 - self.loss;
        }
        self.round_trip_us / 2.0 + on_wire / rate + wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_links() {
        for name in LinkModel::presets() {
            let link = LinkModel::preset(name).unwrap();
            assert_eq!(link.problem(), None, "{name}");
        }
        assert!(LinkModel::preset("carrier pigeon").is_none());
    }

    #[test]
    fn a_transfer_takes_its_bytes_at_the_rate_and_the_way() {
        let wifi = LinkModel::preset("wifi").unwrap().usual();
        let there_and_back = wifi.send_us(300 << 10) + wifi.answer_us(0);
        let limit = (300.0 * 1024.0 * 8.0 / 18.88) + 20_000.0;
        let ratio = there_and_back / limit;
        // What the emulated link measures (BENCHMARKS.md).
        assert!((1.01..1.04).contains(&ratio), "{ratio}");
    }

    #[test]
    fn loss_and_distance_never_help() {
        let good = LinkModel::preset("lte").unwrap().usual();
        for bytes in [0, 1 << 10, 1 << 20] {
            let lossy = LinkState { loss: 0.02, ..good };
            let far = LinkState {
                round_trip_us: 200_000.0,
                ..good
            };
            assert!(lossy.send_us(bytes) > good.send_us(bytes));
            assert!(far.send_us(bytes) > good.send_us(bytes));
        }
    }

    #[test]
    fn what_is_no_link_is_named_by_field() {
        type Spoil = (&'static str, fn(&mut LinkModel));
        let spoil: [Spoil; 4] = [
            ("up", |link| link.up.p50_bps = 0.0),
            ("down", |link| link.down.p5_bps = f64::NAN),
            ("round_trip", |link| link.round_trip.p50_us = -1.0),
            ("loss", |link| link.loss = 1.0),
        ];
        for (field, spoil) in spoil {
            let mut link = LinkModel::preset("wifi").unwrap();
            spoil(&mut link);
            let problem = link.problem().unwrap();
            assert!(problem.contains(field), "{field}: {problem}");
        }
    }
}
