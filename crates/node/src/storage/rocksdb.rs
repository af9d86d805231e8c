//! `niwaki storage rocksdb`: what the storage engine says of itself, under Besu's names.

use crate::Outcome;
use crate::open::open_existing;
use crate::options::{Options, RocksdbCommand};
use crate::stop::Stop;
use eyre::{Result, ensure};
use niwaki_chain::SegmentUsage;

pub(crate) fn run(options: &Options, command: &RocksdbCommand) -> Result<Outcome> {
    let stop = Stop::listen()?;
    let Some(chain) = open_existing(options, &stop)? else {
        return Ok(Outcome::Interrupted);
    };
    match command {
        RocksdbCommand::Usage(usage) => {
            let filter = &usage.column_family_filter;
            print!("{}", table(&filtered(chain.segment_usage()?, filter)?));
        }
        RocksdbCommand::XStats => println!("{}", chain.engine_stats()?),
    }
    Ok(Outcome::Done)
}

/// The segments that are named; all if none is.
fn filtered(mut segments: Vec<SegmentUsage>, names: &[String]) -> Result<Vec<SegmentUsage>> {
    for name in names {
        ensure!(
            segments
                .iter()
                .any(|one| one.name.eq_ignore_ascii_case(name)),
            "there is no column family {name}; choose of {}",
            segments
                .iter()
                .map(|one| one.name)
                .collect::<Vec<_>>()
                .join(", ")
        );
    }
    let is_named =
        |one: &SegmentUsage| names.iter().any(|name| one.name.eq_ignore_ascii_case(name));
    segments.retain(|one| names.is_empty() || is_named(one));
    Ok(segments)
}

/// Segments with their estimated keys and their bytes, and a sum.
fn table(segments: &[SegmentUsage]) -> String {
    let line =
        |name: &str, keys: u64, bytes: u64| format!("{name:<20} {keys:>16} {:>12}\n", size(bytes));
    let mut text = format!(
        "{:<20} {:>16} {:>12}\n",
        "Column Family", "Keys (estimate)", "Size"
    );
    for one in segments {
        text += &line(one.name, one.keys, one.bytes);
    }
    let keys = segments.iter().map(|one| one.keys).sum();
    let bytes = segments.iter().map(|one| one.bytes).sum();
    text + &line("all", keys, bytes)
}

fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = UNITS.iter().find(|(least, _)| bytes >= *least);
    unit.map_or_else(
        || format!("{bytes} B"),
        |(least, name)| format!("{:.1} {name}", bytes as f64 / *least as f64),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_sum_and_sizes_have_units() {
        let segment = |name, keys, bytes| SegmentUsage { name, keys, bytes };
        let both = vec![
            segment("accounts", 1_000, 3 << 20),
            segment("slots", 5, 512),
        ];
        let text = table(&both);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[1].starts_with("accounts") && lines[1].ends_with("3.0 MiB"));
        assert!(lines[2].ends_with(" 512 B"));
        assert!(lines[3].starts_with("all") && lines[3].contains("1005"));
        let named = filtered(both.clone(), &["SLOTS".to_owned()]).unwrap();
        assert_eq!(
            named.iter().map(|one| one.name).collect::<Vec<_>>(),
            ["slots"]
        );
        let error = filtered(both, &["slot".to_owned()])
            .unwrap_err()
            .to_string();
        assert!(error.contains("accounts, slots"), "{error}");
        assert_eq!([size(1 << 40), size(1_536)], ["1024.0 GiB", "1.5 KiB"]);
    }
}
