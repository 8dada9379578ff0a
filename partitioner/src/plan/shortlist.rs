//! Which seams are worth measuring whole, before anything has been measured.

use std::collections::BTreeSet;

use super::places::Place;

/// Speeds of device and service, in operations a second, and rates of the link, in bytes a second,
/// that cover phones to desktops and 3G to cables.
const DEVICE_OPS: [f64; 4] = [1e9, 1e10, 5e10, 2e11];
const CLOUD_OPS: [f64; 2] = [1e11, 1e13];
const LINK_BYTES: [f64; 6] = [1e5, 5e5, 2e6, 8e6, 3e7, 1e8];

/// The share of the shortlist that lies evenly along the depth, so that other seams are never far
/// from one that was measured.
const EVEN_SHARE: usize = 3;

/// Up to `most` of `places` by index, by rising depth, the ends left out: those that are best for
/// some device, service and link by operations and bytes, and others evenly between.
pub fn shortlist(places: &[Place], total_flops: f64, most: usize) -> Vec<usize> {
    let inner: Vec<usize> = (0..places.len())
        .filter(|&index| places[index].seam.is_some())
        .collect();
    if inner.len() <= most {
        return inner;
    }
    let mut wins: Vec<(usize, usize)> = Vec::new();
    for device in DEVICE_OPS {
        for cloud in CLOUD_OPS {
            for link in LINK_BYTES {
                for codec in ["raw", "int8"] {
                    let cost = |&index: &usize| {
                        let place = &places[index];
                        let bytes = place.encoded_bytes(codec).unwrap_or(place.raw_bytes) as f64;
                        let head = place.depth * total_flops;
                        head / device + bytes / link + (total_flops - head) / cloud
                    };
                    let best = inner
                        .iter()
                        .copied()
                        .min_by(|a, b| cost(a).total_cmp(&cost(b)));
                    let Some(best) = best else { continue };
                    match wins.iter_mut().find(|(index, _)| *index == best) {
                        Some((_, count)) => *count += 1,
                        None => wins.push((best, 1)),
                    }
                }
            }
        }
    }
    wins.sort_by_key(|&(index, count)| (std::cmp::Reverse(count), index));
    let even = most / EVEN_SHARE;
    let mut chosen: BTreeSet<usize> = wins
        .iter()
        .map(|&(index, _)| index)
        .take(most - even)
        .collect();
    // The rest goes where the widest gaps in depth are.
    while chosen.len() < most {
        let gap = |index: &usize| {
            let near = chosen
                .iter()
                .map(|&other| places[other].depth)
                .chain([0.0, 1.0]);
            near.map(|depth| (depth - places[*index].depth).abs())
                .fold(f64::INFINITY, f64::min)
        };
        let open = inner
            .iter()
            .copied()
            .filter(|index| !chosen.contains(index));
        let Some(widest) = open.max_by(|a, b| gap(a).total_cmp(&gap(b))) else {
            break;
        };
        chosen.insert(widest);
    }
    chosen.into_iter().collect()
}
