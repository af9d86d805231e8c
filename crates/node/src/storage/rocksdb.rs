//! `niwaki storage rocksdb`: what the storage engine says of itself, under Besu's names.

use crate::Outcome;
use crate::open::open_existing;
use crate::options::{Options, RocksdbCommand};
use crate::stop::Stop;
use eyre::Result;

pub(crate) fn run(options: &Options, command: &RocksdbCommand) -> Result<Outcome> {
    let stop = Stop::listen()?;
    let Some(chain) = open_existing(options, &stop)? else {
        return Ok(Outcome::Interrupted);
    };
    match command {
        RocksdbCommand::Usage(usage) => {
            let mut segments = chain.segment_usage()?;
            segments.retain(|segment| {
                let filter = &usage.column_family_filter;
                filter.is_empty()
                    || filter
                        .iter()
                        .any(|name| name.eq_ignore_ascii_case(segment.name))
            });
            print!(
                "{}",
                table(
                    &segments
                        .iter()
                        .map(|one| (one.name, one.keys, one.bytes))
                        .collect::<Vec<_>>()
                )
            );
        }
        RocksdbCommand::XStats => println!("{}", chain.engine_stats()?),
    }
    Ok(Outcome::Done)
}

/// Segments with their estimated keys and their bytes, and a sum.
fn table(segments: &[(&str, u64, u64)]) -> String {
    let line = |name: &str, keys: &str, size: &str| format!("{name:<20} {keys:>16} {size:>12}\n");
    let mut text = line("Column Family", "Keys (estimate)", "Size");
    let mut all = (0, 0);
    for (name, keys, bytes) in segments {
        text += &line(name, &keys.to_string(), &size(*bytes));
        all = (all.0 + keys, all.1 + bytes);
    }
    text + &line("all", &all.0.to_string(), &size(all.1))
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
        let text = table(&[("accounts", 1_000, 3 << 20), ("slots", 5, 512)]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[1].starts_with("accounts") && lines[1].ends_with("3.0 MiB"));
        assert!(lines[2].ends_with(" 512 B"));
        assert!(lines[3].starts_with("all") && lines[3].contains("1005"));
        assert_eq!([size(1 << 40), size(1_536)], ["1024.0 GiB", "1.5 KiB"]);
    }
}
