//! What the process took of the machine's memory.

/// The most bytes that were resident at once, where the system tells.
pub(crate) fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    parse_peak(&status)
}

fn parse_peak(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_from_the_status_file() {
        let status = "Name:\tniwaki\nVmPeak:\t   9 kB\nVmHWM:\t   1234 kB\nVmRSS:\t 1 kB\n";
        assert_eq!(parse_peak(status), Some(1234 * 1024));
        assert_eq!(parse_peak("Name:\tniwaki\n"), None);
        assert_eq!(parse_peak("VmHWM:\tmany kB\n"), None);
    }
}
