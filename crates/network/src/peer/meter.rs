//! How fast a peer may send: requests, announced hashes, pings. Beyond that its reader pauses, and TCP carries that back to the peer.
//!
//! | what | rate | at once |
//! |---|---|---|
//! | requests of `eth` | 50/s | 50 |
//! | announced hashes | 16,384 in 10 s | 16,384 |
//! | the same, of a chain of validators | 1,048,576 in 10 s | 1,048,576 |
//! | pings | 1/s | 8 |
//!
//! Where validators make the blocks, thousands of transactions a second are normal, and votes come over the same connections: they must not
//! wait behind announcements.
//!
//! No peer is cut for its speed: a client that is busy for a while is no attacker, and one that sends for ever costs itself time.

/// What a meter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metered {
    Request,
    Hashes(usize),
    Ping,
}

/// The meters of one peer.
#[derive(Debug)]
pub(super) struct Meters {
    requests: Meter,
    hashes: Meter,
    pings: Meter,
}

impl Meters {
    /// Those of a peer, of a chain that validators make or of another.
    pub(super) fn new(has_validators: bool) -> Self {
        let hashes = match has_validators {
            true => 1 << 20,
            false => 1 << 14,
        };
        Self {
            requests: Meter::new(50, 1_000, 50),
            hashes: Meter::new(hashes, 10_000, hashes),
            pings: Meter::new(1, 1_000, 8),
        }
    }

    /// Counts what came. Returns for how many milliseconds nothing more is read.
    pub(super) fn count(&mut self, what: Metered, now_ms: u64) -> u64 {
        match what {
            Metered::Request => self.requests.count(1, now_ms),
            Metered::Hashes(count) => self.hashes.count(count, now_ms),
            Metered::Ping => self.pings.count(1, now_ms),
        }
    }
}

/// Each unit takes time of a line that may not be longer than that of `burst` units.
#[derive(Debug)]
struct Meter {
    unit_ns: u64,
    burst_ns: u64,
    /// When all that was counted has had its time.
    free_ns: u64,
}

impl Meter {
    fn new(units: u64, in_ms: u64, burst: u64) -> Self {
        let unit_ns = in_ms * 1_000_000 / units;
        Self {
            unit_ns,
            burst_ns: unit_ns * burst,
            free_ns: 0,
        }
    }

    fn count(&mut self, units: usize, now_ms: u64) -> u64 {
        let now_ns = now_ms.saturating_mul(1_000_000);
        let took_ns = self.unit_ns.saturating_mul(units as u64);
        self.free_ns = self.free_ns.max(now_ns).saturating_add(took_ns);
        let ahead_ns = self.free_ns - now_ns;
        ahead_ns.saturating_sub(self.burst_ns).div_ceil(1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fifty_requests_pass_at_once_and_then_one_in_20_ms() {
        let mut meters = Meters::new(false);
        for _ in 0..50 {
            assert_eq!(meters.count(Metered::Request, 1_000), 0);
        }
        assert_eq!(meters.count(Metered::Request, 1_000), 20);
        assert_eq!(meters.count(Metered::Request, 1_020), 20);
        assert_eq!(meters.count(Metered::Request, 2_000), 0);
    }

    #[test]
    fn four_full_announcements_pass_at_once_and_the_next_waits_for_2500_ms() {
        let mut meters = Meters::new(false);
        for _ in 0..4 {
            assert_eq!(meters.count(Metered::Hashes(4096), 0), 0);
        }
        let wait_ms = meters.count(Metered::Hashes(4096), 0);
        assert!((2_490..=2_500).contains(&wait_ms), "{wait_ms}");
    }

    #[test]
    fn ten_thousand_announcements_a_second_pass_where_validators_make_the_blocks() {
        let mut meters = Meters::new(true);
        for now_ms in (0..20_000).step_by(100) {
            assert_eq!(meters.count(Metered::Hashes(1_000), now_ms), 0);
        }
    }

    #[test]
    fn a_ninth_ping_waits_for_a_second_and_other_meters_for_none() {
        let mut meters = Meters::new(false);
        (0..8).for_each(|_| assert_eq!(meters.count(Metered::Ping, 0), 0));
        assert_eq!(meters.count(Metered::Ping, 0), 1_000);
        assert_eq!(meters.count(Metered::Request, 0), 0);
    }

    proptest! {
        #[test]
        fn who_waits_as_long_as_it_must_keeps_to_the_rate(gaps in prop::collection::vec(0..100_u64, 1..300)) {
            let mut meters = Meters::new(false);
            let mut now_ms = 0;
            for (index, gap_ms) in (1..).zip(&gaps) {
                now_ms += gap_ms + meters.count(Metered::Request, now_ms);
                // 50 at once, then 20 ms for each.
                prop_assert!(now_ms + 20 >= (index - 50_i64).max(0).unsigned_abs() * 20);
            }
        }
    }
}
