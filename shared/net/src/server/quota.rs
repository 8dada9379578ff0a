//! How many connections one address and one device may have.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::identity::PeerIdentity;

/// The counts of an endpoint.
#[derive(Clone)]
pub(super) struct Quotas {
    shared: Arc<Shared>,
}

struct Shared {
    per_address: usize,
    per_device: usize,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    arriving: usize,
    addresses: HashMap<IpAddr, usize>,
    devices: HashMap<PeerIdentity, usize>,
}

impl Quotas {
    /// 0 is half of `connections`.
    pub(super) fn new(connections: usize, per_address: usize, per_device: usize) -> Quotas {
        let or_half = |limit| match limit {
            0 => (connections / 2).max(1),
            limit => limit,
        };
        Quotas {
            shared: Arc::new(Shared {
                per_address: or_half(per_address),
                per_device: or_half(per_device),
                counts: Mutex::default(),
            }),
        }
    }

    /// The limit of one address.
    pub(super) fn per_address(&self) -> usize {
        self.shared.per_address
    }

    /// Handshakes under way.
    pub(super) fn arriving(&self) -> usize {
        self.shared.counts.lock().arriving
    }

    /// A place for a client at `address`, if it may have one more.
    pub(super) fn arrive(&self, address: IpAddr) -> Option<Arriving> {
        let address = network(address);
        let mut counts = self.shared.counts.lock();
        if !take(&mut counts.addresses, address, self.shared.per_address) {
            return None;
        }
        counts.arriving += 1;
        Some(Arriving {
            at: AtAddress {
                shared: Arc::clone(&self.shared),
                address,
            },
            _handshake: Handshake(Arc::clone(&self.shared)),
        })
    }
}

/// A client that has not proved who it is. Dropping it frees its place.
pub(super) struct Arriving {
    at: AtAddress,
    _handshake: Handshake,
}

impl Arriving {
    /// The place of a client that has proved to be `identity`, or the limit of one device.
    pub(super) fn claim(self, identity: PeerIdentity) -> Result<Place, TooMany> {
        let shared = &self.at.shared;
        let limit = shared.per_device;
        if !take(&mut shared.counts.lock().devices, identity.clone(), limit) {
            return Err(TooMany { identity, limit });
        }
        Ok(Place {
            at: self.at,
            identity,
        })
    }
}

/// A device that has as many connections as it may.
pub(super) struct TooMany {
    pub(super) identity: PeerIdentity,
    pub(super) limit: usize,
}

/// A welcomed client's place. Dropping it frees it.
pub(super) struct Place {
    at: AtAddress,
    identity: PeerIdentity,
}

impl Place {
    /// Who has it.
    pub(super) fn identity(&self) -> &PeerIdentity {
        &self.identity
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        give(&mut self.at.shared.counts.lock().devices, &self.identity);
    }
}

struct AtAddress {
    shared: Arc<Shared>,
    address: IpAddr,
}

impl Drop for AtAddress {
    fn drop(&mut self) {
        give(&mut self.shared.counts.lock().addresses, &self.address);
    }
}

struct Handshake(Arc<Shared>);

impl Drop for Handshake {
    fn drop(&mut self) {
        self.0.counts.lock().arriving -= 1;
    }
}

/// Who is behind an address: an IPv6 host usually has a /64 network to itself.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let host = u128::from(u64::MAX);
            IpAddr::V6((u128::from(address) & !host).into())
        }
        address => address,
    }
}

fn take<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: K, limit: usize) -> bool {
    let count = counts.entry(key);
    match count {
        Entry::Occupied(mut count) if *count.get() < limit => {
            *count.get_mut() += 1;
            true
        }
        Entry::Occupied(_) => false,
        Entry::Vacant(count) => {
            count.insert(1);
            true
        }
    }
}

fn give<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Proof;

    fn device(name: &str) -> PeerIdentity {
        PeerIdentity {
            name: name.to_owned(),
            proof: Proof::Certificate,
        }
    }

    #[test]
    fn places_are_counted_and_come_back() {
        let quotas = Quotas::new(100, 3, 2);
        let address: IpAddr = "192.0.2.1".parse().unwrap();
        let arrive = || quotas.arrive(address);
        let [first, second, third] = [arrive(), arrive(), arrive()].map(Option::unwrap);
        assert!(arrive().is_none());
        assert!(quotas.arrive("192.0.2.2".parse().unwrap()).is_some());
        assert_eq!(quotas.arriving(), 3);
        let first = first.claim(device("a")).ok().unwrap();
        let _second = second.claim(device("a")).ok().unwrap();
        assert_eq!(third.claim(device("a")).err().unwrap().limit, 2);
        assert_eq!(quotas.arriving(), 0);
        let third = arrive().unwrap();
        drop(first);
        let _third = third.claim(device("a")).ok().unwrap();
        let _other = arrive().unwrap().claim(device("b")).ok().unwrap();
        let counts = quotas.shared.counts.lock();
        assert_eq!((counts.addresses.len(), counts.devices.len()), (1, 2));
    }

    #[test]
    fn a_network_of_ipv6_is_one_address_and_a_mapped_one_is_itself() {
        let quotas = Quotas::new(100, 1, 1);
        let arrive = |address: &str| quotas.arrive(address.parse().unwrap());
        let _held = arrive("2001:db8::1").unwrap();
        assert!(arrive("2001:db8::ffff:1").is_none());
        assert!(arrive("2001:db8:0:1::1").is_some());
        let _held = arrive("::ffff:192.0.2.1").unwrap();
        assert!(arrive("192.0.2.1").is_none());
    }

    #[test]
    fn without_a_limit_half_of_all_places_are_one_devices() {
        let quotas = Quotas::new(1, 0, 0);
        assert_eq!(quotas.per_address(), 1);
        assert_eq!(Quotas::new(4096, 0, 7).per_address(), 2048);
        assert_eq!(Quotas::new(4096, 0, 7).shared.per_device, 7);
    }
}
