//! geth's `evm run --bench`: one process per batch, which times itself.

use super::{CALLER, CONTRACT, Contender, GAS, Program};
use crate::process::run;
use eyre::{Context, Result, bail, eyre};
use niwaki_primitives::{U256, hex};
use std::{path::Path, process::Command, time::Duration};

/// Runs `program` with `evm`, which reports the mean of as many runs as fill a second.
pub(super) fn contender<'a>(program: &'a Program, evm: &'a Path) -> Result<Contender<'a>> {
    let file = tempfile::NamedTempFile::with_suffix(".json")
        .wrap_err("can't make a file for geth's genesis; check the folder for temporary files")?;
    std::fs::write(file.path(), prestate(program))
        .wrap_err_with(|| format!("can't write {}", file.path().display()))?;
    Ok(Box::new(move |times| {
        let mut command = Command::new(evm);
        command
            .args(["run", "--bench", "--gas", &GAS.to_string(), "--prestate"])
            .arg(file.path())
            .args(["--receiver", &CONTRACT.to_string()])
            .args(["--sender", &CALLER.to_string()])
            .args(["--input", &hex::encode(&program.input)]);
        let (text, _) = run(command)?;
        let (time, gas) = parse_report(&text)
            .wrap_err_with(|| format!("{}, program {}", evm.display(), program.name))?;
        Ok((time * times, gas))
    }))
}

/// Time and gas of a run in the output of `evm run --bench`.
fn parse_report(text: &str) -> Result<(Duration, u64)> {
    let field = |name: &str| {
        let (_, rest) = text.lines().find_map(|line| line.split_once(name))?;
        let mut words = rest.trim_start_matches([':', ' ', '\t']).split_whitespace();
        words.next()
    };
    let (Some(gas), Some(time)) = (field("EVM gas used"), field("execution time")) else {
        let lines: Vec<&str> = text.lines().take(3).collect();
        bail!(
            "no gas and time in what it printed ({}); use evm 1.17.10 (`cargo xtask peers`)",
            lines.join(" / ")
        );
    };
    let gas = gas.parse().map_err(|_| eyre!("{gas} is no gas"))?;
    Ok((parse_go_duration(time)?, gas))
}

/// A genesis file with the program's account, at Osaka.
fn prestate(program: &Program) -> String {
    let zero_blocks = [
        "homesteadBlock",
        "eip150Block",
        "eip155Block",
        "eip158Block",
        "byzantiumBlock",
        "constantinopleBlock",
        "petersburgBlock",
        "istanbulBlock",
        "muirGlacierBlock",
        "berlinBlock",
        "londonBlock",
        "arrowGlacierBlock",
        "grayGlacierBlock",
        "mergeNetsplitBlock",
        "shanghaiTime",
        "cancunTime",
        "pragueTime",
        "osakaTime",
        "terminalTotalDifficulty",
    ];
    let mut config = serde_json::Map::from_iter(zero_blocks.map(|key| (key.into(), 0.into())));
    config.insert("chainId".into(), 1.into());
    let schedule = serde_json::json!({"target": 6, "max": 9, "baseFeeUpdateFraction": 5_007_716});
    let blobs = serde_json::json!({"cancun": schedule, "prague": schedule, "osaka": schedule});
    config.insert("blobSchedule".into(), blobs);
    let genesis = serde_json::json!({
        "config": config, "difficulty": "0x0", "gasLimit": format!("{GAS:#x}"), "number": "0x0",
        "alloc": {
            CONTRACT.to_string(): {"balance": "0x0", "code": program.code},
            CALLER.to_string(): {"balance": format!("{:#x}", U256::from(1) << 128)},
        },
    });
    genesis.to_string()
}

/// Parses a Go duration with one unit, such as `130.5ms`.
fn parse_go_duration(text: &str) -> Result<Duration> {
    for (unit, seconds) in [
        ("ns", 1e-9),
        ("\u{b5}s", 1e-6),
        ("us", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
    ] {
        if let Some(number) = text.strip_suffix(unit).and_then(|n| n.parse::<f64>().ok()) {
            return Ok(Duration::from_secs_f64(number * seconds));
        }
    }
    bail!("{text} is no duration")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_are_parsed() {
        assert_eq!(
            parse_go_duration("1.5ms").unwrap(),
            Duration::from_micros(1500)
        );
        assert_eq!(
            parse_go_duration("2\u{b5}s").unwrap(),
            Duration::from_micros(2)
        );
        assert!(parse_go_duration("fast").is_err());
    }

    #[test]
    fn gas_and_time_are_parsed_from_geths_output() {
        let text = "EVM gas used:    3179\nexecution time:  40.1\u{b5}s\nallocations:     12\n";
        let (time, gas) = parse_report(text).unwrap();
        assert_eq!((time, gas), (Duration::from_nanos(40_100), 3179));
    }

    #[test]
    fn output_without_gas_and_time_is_quoted_on_one_line() {
        let error = parse_report("Fatal: no such flag\nusage: evm\n").unwrap_err();
        let text = format!("{error:#}");
        assert!(
            text.contains("Fatal: no such flag") && !text.contains('\n'),
            "{text}"
        );
    }
}
