//! Human-readable values for the log: short hashes, ages, gas, wei, dates.
//!
//! Each is a wrapper with a `Display`, so that a line that is not logged costs nothing.

use niwaki_primitives::{B256, U256};
use std::fmt;

/// A hash by its first four and its last three bytes: `0xd4e56740..cb8fa3`.
#[derive(Clone, Copy, Debug)]
pub struct ShortHash(pub B256);

impl fmt::Display for ShortHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.0
            .iter()
            .take(4)
            .try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("..")?;
        self.0
            .iter()
            .skip(29)
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A duration in milliseconds: `1.2s`, `3m12s`, `2h05m`, `5d04h`.
#[derive(Clone, Copy, Debug)]
pub struct Age(pub u64);

impl Age {
    /// Since `timestamp`, seconds since 1970, at `now_ms`, milliseconds since 1970; zero before it.
    pub const fn since(timestamp: u64, now_ms: u64) -> Self {
        Self(now_ms.saturating_sub(timestamp.saturating_mul(1_000)))
    }
}

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1_000;
        let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
        match (days, hours, minutes) {
            (0, 0, 0) => write!(f, "{seconds}.{}s", self.0 % 1_000 / 100),
            (0, 0, _) => write!(f, "{minutes}m{:02}s", seconds % 60),
            (0, _, _) => write!(f, "{hours}h{:02}m", minutes % 60),
            _ => write!(f, "{days}d{:02}h", hours % 24),
        }
    }
}

/// An amount of gas: `21000`, `950k`, `30.1M`.
#[derive(Clone, Copy, Debug)]
pub struct Gas(pub u64);

impl fmt::Display for Gas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            gas if gas >= 1_000_000 => write!(f, "{}.{}M", gas / 1_000_000, gas / 100_000 % 10),
            gas if gas >= 100_000 => write!(f, "{}k", gas / 1_000),
            gas => write!(f, "{gas}"),
        }
    }
}

/// A part of a total: `50%`; of a total of zero, `0%`.
#[derive(Clone, Copy, Debug)]
pub struct Percent(pub u64, pub u64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.0.saturating_mul(100).checked_div(self.1).unwrap_or(0);
        write!(f, "{percent}%")
    }
}

/// An amount of wei in a suitable unit: `7 wei`, `1.234 gwei`, `0.012 ETH`.
#[derive(Clone, Copy, Debug)]
pub struct Wei(pub U256);

impl fmt::Display for Wei {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const THOUSANDTH_OF_GWEI: u64 = 1_000_000;
        const THOUSANDTH_OF_ETHER: u64 = 1_000_000_000_000_000;
        let (unit, thousandths) = if self.0 < U256::from(THOUSANDTH_OF_GWEI) {
            return write!(f, "{} wei", self.0);
        } else if self.0 < U256::from(THOUSANDTH_OF_ETHER) {
            ("gwei", self.0 / U256::from(THOUSANDTH_OF_GWEI))
        } else {
            ("ETH", self.0 / U256::from(THOUSANDTH_OF_ETHER))
        };
        let (whole, rest) = thousandths.div_rem(U256::from(1_000));
        let rest = format!("{:03}", rest.saturating_to::<u64>());
        match rest.trim_end_matches('0') {
            "" => write!(f, "{whole} {unit}"),
            rest => write!(f, "{whole}.{rest} {unit}"),
        }
    }
}

/// A time in seconds since 1970, as a date: `2026-12-01 10:00:00 UTC`.
#[derive(Clone, Copy, Debug)]
pub struct Utc(pub u64);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date_of(self.0 / 86_400);
        let second = self.0 % 86_400;
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC"
        )
    }
}

/// Year, month and day of a number of days since 1970-01-01, in the Gregorian calendar. Years begin in March, so that
/// the leap day is the last of its year, and 400 years have 146,097 days.
const fn date_of(days: u64) -> (u64, u64, u64) {
    let days = days.saturating_add(719_468);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let from_january = month >= 10;
    let year = era * 400 + year_of_era + from_january as u64;
    (year, if from_january { month - 9 } else { month + 3 }, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_its_first_four_and_last_three_bytes() {
        let hash = "0xd4e56740f876aef8c010b86a40d5f56745a118d0906a34e69aec8c0db1cb8fa3";
        let short = ShortHash(hash.parse().unwrap());
        assert_eq!(short.to_string(), "0xd4e56740..cb8fa3");
    }

    #[test]
    fn an_age_has_two_units_at_most() {
        for (ms, text) in [
            (0, "0.0s"),
            (1_290, "1.2s"),
            (59_999, "59.9s"),
            (192_000, "3m12s"),
            (7_500_000, "2h05m"),
            (446_400_000, "5d04h"),
        ] {
            assert_eq!(Age(ms).to_string(), text);
        }
        assert_eq!(Age::since(10, 11_500).to_string(), "1.5s");
        assert_eq!(Age::since(10, 9_000).to_string(), "0.0s");
    }

    #[test]
    fn gas_and_percent_are_rounded_down() {
        for (gas, text) in [(21_000, "21000"), (950_999, "950k"), (30_190_000, "30.1M")] {
            assert_eq!(Gas(gas).to_string(), text);
        }
        assert_eq!(Percent(299, 300).to_string(), "99%");
        assert_eq!(Percent(1, 0).to_string(), "0%");
    }

    #[test]
    fn wei_are_shown_as_wei_gwei_or_eth() {
        for (wei, text) in [
            (0_u128, "0 wei"),
            (7, "7 wei"),
            (1_234_567_000, "1.234 gwei"),
            (1_000_000_000, "1 gwei"),
            (12_000_000_000_000_000, "0.012 ETH"),
            (90_000_000_000_000_000_000_000, "90000 ETH"),
        ] {
            assert_eq!(Wei(U256::from(wei)).to_string(), text);
        }
    }

    #[test]
    fn dates_know_leap_years() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_709_164_799, "2024-02-28 23:59:59 UTC"),
            (1_709_164_800, "2024-02-29 00:00:00 UTC"),
            (1_663_224_179, "2022-09-15 06:42:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(Utc(seconds).to_string(), text);
        }
    }
}
