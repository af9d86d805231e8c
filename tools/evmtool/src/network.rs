//! Chain specifications by a fixture's network name.

use niwaki_primitives::{Fork, U256};
use niwaki_rules::{Activation, BlobParams, ChainSpec, DaoFork};
use niwaki_testkit::fixtures::FixtureConfig;

/// The chain of `network`: a fork from genesis on (`Prague`), or a transition by block
/// (`BerlinToLondonAt5`), timestamp (`ParisToShanghaiAtTime15k`) or total difficulty
/// (`ArrowGlacierToParisAtDiffC0000`).
///
/// # Errors
/// The part of the name that is unknown.
pub(crate) fn chain_spec(network: &str, config: &FixtureConfig) -> Result<ChainSpec, String> {
    let mut spec = parse_network(network)?;
    spec.chain_id = config.chain_id.unwrap_or(1);
    spec.network_id = spec.chain_id;
    for (name, [target, max, fraction]) in &config.blob_schedule {
        let fork = fork_of(name)?;
        spec.blob_schedule[fork as usize] = Some(BlobParams::new(*target, *max, *fraction));
    }
    Ok(spec)
}

/// Whether `network` is the name of a fork or of a transition.
pub(crate) fn is_known(network: &str) -> bool {
    parse_network(network).is_ok()
}

fn fork_of(name: &str) -> Result<Fork, String> {
    match name {
        "Dao" => Ok(Fork::DaoFork),
        _ => Fork::from_name(name).ok_or_else(|| format!("{name} is no fork that is known")),
    }
}

fn parse_network(network: &str) -> Result<ChainSpec, String> {
    let Some((from, rest)) = network.split_once("To") else {
        return Ok(ChainSpec::single(1, fork_of(network)?));
    };
    let (to, at) = rest
        .split_once("At")
        .ok_or_else(|| format!("{network} does not say where the transition is"))?;
    let (from, to) = (fork_of(from)?, fork_of(to)?);
    let mut spec = ChainSpec::single(1, from);
    let activation = parse_point(at).ok_or_else(|| format!("{at} is no point of transition"))?;
    if let Point::Difficulty(ttd) = activation {
        spec.terminal_total_difficulty = Some(ttd);
    }
    for fork in Fork::ALL.into_iter().filter(|f| *f > from && *f <= to) {
        match activation {
            Point::Block(block) => {
                if fork == Fork::DaoFork && to != fork {
                    continue;
                }
                if fork == Fork::DaoFork {
                    spec.dao_fork = Some(DaoFork {
                        block,
                        support: true,
                    });
                }
                spec.set(fork, Activation::Block(block));
            }
            Point::Time(time) => spec.set(fork, Activation::Time(time)),
            // Forks in between, such as Gray Glacier, never activate.
            Point::Difficulty(_) if fork == to => spec.set(fork, Activation::TotalDifficulty),
            Point::Difficulty(_) => {}
        }
    }
    Ok(spec)
}

#[derive(Clone, Copy)]
enum Point {
    Block(u64),
    Time(u64),
    Difficulty(U256),
}

fn parse_point(text: &str) -> Option<Point> {
    if let Some(time) = text.strip_prefix("Time") {
        let (digits, factor) = match time.strip_suffix('k') {
            Some(digits) => (digits, 1000),
            None => (time, 1),
        };
        return digits
            .parse::<u64>()
            .ok()?
            .checked_mul(factor)
            .map(Point::Time);
    }
    if let Some(difficulty) = text.strip_prefix("Diff") {
        return U256::from_str_radix(difficulty, 16)
            .ok()
            .map(Point::Difficulty);
    }
    text.parse().ok().map(Point::Block)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(network: &str) -> ChainSpec {
        chain_spec(network, &FixtureConfig::default()).unwrap()
    }

    #[test]
    fn fork_name_is_that_fork_from_genesis() {
        assert_eq!(spec("Prague").fork_at(0, 0, true), Fork::Prague);
        assert_eq!(
            spec("ConstantinopleFix").fork_at(0, 0, false),
            Fork::Petersburg
        );
    }

    #[test]
    fn transitions_are_by_block_timestamp_and_total_difficulty() {
        let london = spec("BerlinToLondonAt5");
        assert_eq!(london.fork_at(4, 0, false), Fork::Berlin);
        assert_eq!(london.fork_at(5, 0, false), Fork::London);
        let cancun = spec("ShanghaiToCancunAtTime15k");
        assert_eq!(cancun.fork_at(1, 14_999, true), Fork::Shanghai);
        assert_eq!(cancun.fork_at(1, 15_000, true), Fork::Cancun);
        let paris = spec("ArrowGlacierToParisAtDiffC0000");
        assert_eq!(paris.fork_at(1, 0, false), Fork::ArrowGlacier);
        assert_eq!(paris.fork_at(1, 0, true), Fork::Paris);
        assert!(paris.is_terminal(U256::from(0xc0000)));
        let dao = spec("HomesteadToDaoAt5");
        assert_eq!(dao.dao_fork.unwrap().block, 5);
        assert!(spec("HomesteadToEIP150At5").dao_fork.is_none());
    }

    #[test]
    fn unknown_name_is_an_error() {
        for name in ["Atlantis", "BerlinToLondon", "BerlinToLondonAtx"] {
            assert!(
                chain_spec(name, &FixtureConfig::default()).is_err(),
                "{name}"
            );
        }
    }
}
