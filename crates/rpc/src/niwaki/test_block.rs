//! A block for tests.

use niwaki_chain::{BlockId, ImportStatus, Imported, ReadStats, Timings, WriteStats};
use niwaki_execution::TxStats;
use niwaki_primitives::B256;
use std::time::Duration;

/// A block that took as many milliseconds as the last two digits of its number say.
pub(super) fn imported(number: u64) -> Imported {
    Imported {
        id: BlockId {
            number,
            hash: B256::with_last_byte(number.to_be_bytes()[7]),
        },
        status: ImportStatus::Side,
        gas_used: 30,
        transactions: 5,
        tx_stats: TxStats {
            validated: 2,
            reexecuted: 1,
            sequential: 2,
            ..TxStats::default()
        },
        has_bal_root: true,
        root_flushes: 3,
        has_bal: true,
        bal: None,
        reads: ReadStats::default(),
        writes: WriteStats {
            accounts: 4,
            slots: 6,
            ..WriteStats::default()
        },
        waiting_batches: 3,
        timings: Timings {
            execute: Duration::from_millis(number % 100),
            ..Timings::default()
        },
    }
}
