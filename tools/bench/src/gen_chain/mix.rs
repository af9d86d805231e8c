//! The transaction mix of a generated chain: the kinds of transactions and their shares.
//!
//! Modelled on mainnet: 1,236 transactions of 14 recorded blocks, 19,426,587 to 25,229,957. By number: 36 % plain
//! transfers, 27 % ERC-20 transfers, 6 % approvals, 30 % other calls, 0.6 % with blobs, 0.8 % (1.6 % since Prague) set
//! code; 11 % are legacy transactions, 0.4 % have type 1. In the seven blocks that record gas, a transaction uses 69,000
//! on average: plain transfers use 12 % of it, tokens 18 %, approvals 5 %, other calls 64 %. 1.1 % fail. The most called
//! contract uses 19 % of a block's gas, the first five 48 %. Gas limits are 2.1 times the gas used. The shares within
//! the other calls are invented.

/// A kind of transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Transfer,
    TokenTransfer,
    TokenTransferFrom,
    Approve,
    PairSwap,
    PoolSwap,
    PoolMint,
    NftMint,
    NftTransfer,
    Deploy,
    FactoryMake,
    LedgerAppend,
    LedgerUpdate,
    LedgerSum,
    Compute,
    Revert,
    Blob,
    SetCode,
    WalletBatch,
    Growth,
}

/// The share and gas limit of a kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct KindRow {
    pub(super) kind: Kind,
    pub(super) name: &'static str,
    /// Share per ten thousand transactions.
    pub(super) share: u64,
    /// Gas limit before Amsterdam, without steps.
    pub(super) gas_limit: u64,
    /// Gas limit of each step of the work.
    pub(super) gas_by_step: u64,
}

const fn row(kind: Kind, name: &'static str, share: u64, gas_limit: u64, by_step: u64) -> KindRow {
    KindRow {
        kind,
        name,
        share,
        gas_limit,
        gas_by_step: by_step,
    }
}

/// All kinds.
#[rustfmt::skip]
pub(super) const MIX: [KindRow; 19] = [
    row(Kind::Transfer,          "transfer",           3_600,    21_000,      0),
    row(Kind::TokenTransfer,     "token transfer",     2_300,   100_000,      0),
    row(Kind::TokenTransferFrom, "token transferFrom",   400,   120_000,      0),
    row(Kind::Approve,           "approve",              600,    90_000,      0),
    row(Kind::PairSwap,          "pair swap",          1_250,   100_000, 200_000),
    row(Kind::PoolSwap,          "pool swap",            650,   600_000,      0),
    row(Kind::PoolMint,          "pool mint",            100,   700_000,      0),
    row(Kind::NftMint,           "nft mint",             200,   100_000, 100_000),
    row(Kind::NftTransfer,       "nft transfer",         120,   250_000,      0),
    row(Kind::Deploy,            "deploy",                50,   700_000,      0),
    row(Kind::FactoryMake,       "factory make",          50,   500_000,      0),
    row(Kind::LedgerAppend,      "ledger append",         50,   100_000,  30_000),
    row(Kind::LedgerUpdate,      "ledger update",         60,    60_000,  10_000),
    row(Kind::LedgerSum,         "ledger sum",            50,    60_000,   4_000),
    row(Kind::Compute,           "compute",              120, 1_000_000,      0),
    row(Kind::Revert,            "revert",               160,   200_000,      0),
    row(Kind::Blob,              "blob",                  60,   100_000,      0),
    row(Kind::SetCode,           "set code",             100,   400_000,      0),
    row(Kind::WalletBatch,       "wallet batch",          80,   300_000,      0),
];

/// Transactions that let a chain grow, before those of the mix.
pub(super) const GROWTH: KindRow = row(Kind::Growth, "growth", 0, 16_000_000, 0);

/// The kind that `number`, below the sum of all shares, selects.
pub(super) fn at(number: u64) -> &'static KindRow {
    let mut left = number;
    let found = MIX.iter().find(|row| {
        let is_selected = left < row.share;
        left = left.saturating_sub(row.share);
        is_selected
    });
    found.unwrap_or(&MIX[0])
}

/// The row of a kind.
pub(super) fn of(kind: Kind) -> &'static KindRow {
    let found = MIX.iter().find(|row| row.kind == kind);
    found.unwrap_or(&MIX[0])
}

/// The sum of all shares.
pub(super) fn total() -> u64 {
    MIX.iter().map(|row| row.share).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_selected_by_its_share() {
        for row in &MIX {
            let count = (0..total()).filter(|n| at(*n).kind == row.kind).count();
            assert_eq!(count as u64, row.share, "{}", row.name);
        }
    }

    #[test]
    fn shares_are_within_2_percent_of_mainnet() {
        let share = |kinds: &[Kind]| {
            let rows = MIX.iter().filter(|row| kinds.contains(&row.kind));
            rows.map(|row| row.share).sum::<u64>() * 100 / total()
        };
        assert!((34..=38).contains(&share(&[Kind::Transfer])));
        assert!((25..=29).contains(&share(&[Kind::TokenTransfer, Kind::TokenTransferFrom])));
        assert!((4..=8).contains(&share(&[Kind::Approve])));
    }
}
