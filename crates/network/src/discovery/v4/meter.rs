//! How many requests are looked at: 50 a second of one address, 500 in all. The rest is dropped before a signature is checked.
//!
//! Answers that we asked for are not metered, and addresses of private networks only in all: a test network may have a hundred nodes on
//! one machine. Addresses share 1,024 counters by hash, so that the memory is fixed; a flood of one address may delay another's
//! request, never our own.

use crate::address::is_public;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

const PER_ADDRESS: u16 = 50;
const IN_ALL: u32 = 500;
const COUNTERS: usize = 1024;
const WINDOW_MS: u64 = 1000;

/// The counters of the current second.
#[derive(Debug)]
pub(crate) struct Meter {
    started_ms: u64,
    in_all: u32,
    counters: Box<[u16; COUNTERS]>,
    hasher: RandomState,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            started_ms: 0,
            in_all: 0,
            counters: Box::new([0; COUNTERS]),
            hasher: RandomState::new(),
        }
    }
}

impl Meter {
    /// Counts a request of `ip`. Returns whether it may be looked at.
    pub(crate) fn admits(&mut self, ip: IpAddr, now_ms: u64) -> bool {
        if now_ms.saturating_sub(self.started_ms) >= WINDOW_MS {
            self.started_ms = now_ms;
            self.in_all = 0;
            self.counters.fill(0);
        }
        if self.in_all >= IN_ALL {
            return false;
        }
        if is_public(ip) {
            let at = self.hasher.hash_one(ip) % COUNTERS as u64;
            let at = usize::try_from(at).unwrap_or_default();
            let Some(counter) = self.counters.get_mut(at) else {
                return false;
            };
            if *counter >= PER_ADDRESS {
                return false;
            }
            *counter += 1;
        }
        self.in_all += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(meter: &mut Meter, ip: [u8; 4], requests: usize, now_ms: u64) -> usize {
        let admits = (0..requests).filter(|_| meter.admits(ip.into(), now_ms));
        admits.count()
    }

    #[test]
    fn an_address_gets_50_requests_a_second() {
        let mut meter = Meter::default();
        assert_eq!(admitted(&mut meter, [8, 8, 8, 8], 100, 5000), 50);
        assert_eq!(admitted(&mut meter, [8, 8, 8, 8], 100, 5999), 0);
        assert_eq!(admitted(&mut meter, [8, 8, 8, 8], 100, 6000), 50);
    }

    #[test]
    fn all_addresses_get_500_requests_a_second_and_private_ones_are_not_counted_alone() {
        let mut meter = Meter::default();
        assert_eq!(admitted(&mut meter, [127, 0, 0, 1], 10_000, 0), 500);
        assert_eq!(admitted(&mut meter, [8, 8, 8, 8], 1, 1), 0);
        assert_eq!(admitted(&mut meter, [8, 8, 8, 8], 1, 1000), 1);
    }
}
