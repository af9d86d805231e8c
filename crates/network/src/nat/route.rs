//! The default gateway, which Linux lists in `/proc/net/route`; elsewhere it is not known.

use std::net::Ipv4Addr;

/// The gateway over which packets to everywhere leave this machine.
pub(super) fn default_gateway() -> Option<Ipv4Addr> {
    let table = std::fs::read_to_string("/proc/net/route").ok()?;
    gateway_of(&table)
}

/// A row: interface, destination, gateway, flags, three counters, of which the last is the metric, mask. Addresses are hexadecimal
/// numbers whose bytes in memory are the address.
fn gateway_of(table: &str) -> Option<Ipv4Addr> {
    let address = |text: &str| {
        let number = u32::from_str_radix(text, 16).ok()?;
        Some(Ipv4Addr::from(number.to_ne_bytes()))
    };
    let row = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, destination, gateway, _, _, _, metric, mask, ..] = fields[..] else {
            return None;
        };
        let everywhere = Some(Ipv4Addr::UNSPECIFIED);
        let is_default = address(destination) == everywhere && address(mask) == everywhere;
        let gateway = address(gateway).filter(|ip| is_default && !ip.is_unspecified())?;
        Some((metric.parse::<u32>().ok()?, gateway))
    };
    let best = table.lines().filter_map(row).min();
    best.map(|(_, gateway)| gateway)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(ip: [u8; 4]) -> String {
        format!("{:08X}", u32::from_ne_bytes(ip))
    }

    #[test]
    fn the_gateway_is_that_of_the_default_route_with_the_lowest_metric() {
        let row = |destination, gateway, metric: u32, mask| {
            let [destination, gateway, mask] = [destination, gateway, mask].map(number);
            format!("eth0\t{destination}\t{gateway}\t0003\t0\t0\t{metric}\t{mask}\t0\t0\t0\n")
        };
        let table = [
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n".to_owned(),
            row([0; 4], [192, 168, 2, 1], 600, [0; 4]),
            row([0; 4], [192, 168, 1, 1], 100, [0; 4]),
            row([0; 4], [0; 4], 1, [0; 4]),
            row([10, 0, 0, 0], [10, 0, 0, 1], 0, [255, 0, 0, 0]),
        ];
        assert_eq!(gateway_of(&table.concat()), Some([192, 168, 1, 1].into()));
    }

    #[test]
    fn a_table_without_a_default_route_or_of_something_else_has_no_gateway() {
        for table in [
            "",
            "Iface\tDestination\n",
            "eth0 x y z 0 0 0 w 0",
            "eth0 00000000",
        ] {
            assert_eq!(gateway_of(table), None, "{table}");
        }
    }
}
