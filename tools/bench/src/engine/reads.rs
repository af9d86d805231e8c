//! The contenders: which files they read, and how they ask for many rows.

use super::files::{self, Tables};
use super::{Key, Options};
use eyre::{Result, eyre};
use niwaki_storage::Segment;
use rocksdb::{ColumnFamily, DB, ReadOptions};
use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Who reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contender {
    pub(super) name: &'static str,
    ask: Ask,
    threads: usize,
    tables: Tables,
    is_direct: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    /// One row after the other.
    Get,
    /// Several in one call.
    MultiGet,
    /// The same, the engine told to read ahead of itself where it can.
    MultiGetAsync,
}

/// As many as read the nodes of tries that are not in memory.
const THREADS: usize = 16;

impl Contender {
    /// What was chosen, on one thread; the others are compared with it.
    pub(super) const ONE: Self = Self {
        name: "one by one",
        ask: Ask::Get,
        threads: 1,
        tables: Tables::Chosen,
        is_direct: false,
    };

    pub(super) const ALL: [Self; 10] = [
        Self::ONE,
        Self {
            name: "Ribbon",
            tables: Tables::Ribbon,
            ..Self::ONE
        },
        Self {
            name: "blocks of 16 KiB",
            tables: Tables::LargeBlocks,
            ..Self::ONE
        },
        Self {
            name: "one level",
            tables: Tables::OneLevel,
            ..Self::ONE
        },
        Self {
            name: "direct",
            is_direct: true,
            ..Self::ONE
        },
        Self {
            name: "multi_get",
            ask: Ask::MultiGet,
            ..Self::ONE
        },
        Self {
            name: "multi_get, async",
            ask: Ask::MultiGetAsync,
            ..Self::ONE
        },
        Self {
            name: "threads",
            threads: THREADS,
            ..Self::ONE
        },
        Self {
            name: "threads, multi_get",
            ask: Ask::MultiGet,
            threads: THREADS,
            ..Self::ONE
        },
        Self {
            name: "threads, direct",
            is_direct: true,
            threads: THREADS,
            ..Self::ONE
        },
    ];

    pub(super) fn tables(&self) -> Tables {
        self.tables
    }

    /// The files in `folder`, opened as this contender reads them.
    pub(super) fn open(&self, options: &Options, folder: &Path) -> Result<DB> {
        files::open(folder, options, self.is_direct)
    }
}

/// What is read in which portions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) segment: Segment,
    pub(super) at_once: usize,
}

impl Way {
    /// Reads the rows of `keys` as `contender` does; gives the time and how many there are.
    pub(super) fn read(
        self,
        engine: &DB,
        contender: Contender,
        keys: &[Key],
    ) -> Result<(Duration, usize)> {
        let family = engine
            .cf_handle(self.segment.name())
            .ok_or_else(|| eyre!("no {} in the database", self.segment.name()))?;
        let portions: Vec<_> = keys.chunks(self.at_once).collect();
        let next = AtomicUsize::new(0);
        let work = || -> Result<usize, rocksdb::Error> {
            let mut found = 0;
            // Only who takes which portion hangs on the counter.
            while let Some(portion) = portions.get(next.fetch_add(1, Ordering::Relaxed)) {
                found += ask(engine, family, contender.ask, portion)?;
            }
            Ok(found)
        };
        let clock = Instant::now();
        let found = std::thread::scope(|scope| {
            let helpers: Vec<_> = (1..contender.threads).map(|_| scope.spawn(work)).collect();
            let own = work();
            let join = |helper: std::thread::ScopedJoinHandle<'_, _>| {
                helper
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            helpers
                .into_iter()
                .map(join)
                .try_fold(own?, |sum, found| Ok::<_, rocksdb::Error>(sum + found?))
        })?;
        Ok((clock.elapsed(), found))
    }
}

fn ask(
    engine: &DB,
    family: &ColumnFamily,
    ask: Ask,
    keys: &[Key],
) -> Result<usize, rocksdb::Error> {
    let mut found = 0;
    if ask == Ask::Get {
        for key in keys {
            found += usize::from(black_box(engine.get_pinned_cf(family, key)?).is_some());
        }
        return Ok(found);
    }
    let mut options = ReadOptions::default();
    options.set_async_io(ask == Ask::MultiGetAsync);
    for value in engine.batched_multi_get_cf_opt(family, keys, false, &options) {
        found += usize::from(black_box(value?).is_some());
    }
    Ok(found)
}
