//! The contenders of `sload`: our view, a bare RocksDB over the same files, and MDBX with a copy.

use super::Options;
use crate::big_state::Budget;
use alloy_primitives::keccak256;
use eyre::{Context, Result, eyre};
use niwaki_primitives::{Address, B256, StateView, U256};
use niwaki_state::{View, WorldState, decode_value};
use niwaki_storage::Segment;
use rocksdb::{BlockBasedOptions, Cache, DB};
use signet_libmdbx::tx::aliases::RoTxUnsync;
use signet_libmdbx::{DatabaseFlags, Environment, EnvironmentFlags, Geometry, Mode, WriteFlags};
use std::borrow::Cow;
use std::path::Path;

/// Which contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Niwaki,
    RocksDb,
    Mdbx,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Niwaki, Self::RocksDb, Self::Mdbx];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Niwaki => "niwaki",
            Self::RocksDb => "RocksDB",
            Self::Mdbx => "MDBX",
        }
    }
}

/// An open contender.
pub(super) enum Engine {
    Niwaki(Box<WorldState>),
    RocksDb(Box<DB>),
    Mdbx(Environment),
}

/// What one thread reads through.
pub(super) enum Reader<'a> {
    Niwaki(View),
    RocksDb(&'a DB),
    Mdbx(Box<RoTxUnsync>, u32),
}

/// The largest copy: address space, not memory.
const MDBX_MAX_BYTES: usize = 1 << 38;
/// Rows that are written to the copy at once.
const MDBX_ROWS_AT_ONCE: usize = 1_000_000;
/// The row of the copy that says of which state it is.
const MDBX_ROOT: &[u8] = b"root";

impl Engine {
    /// Opens the contender whose files are in `folder`.
    pub(super) fn open(kind: Kind, options: &Options, folder: &Path) -> Result<Self> {
        match kind {
            Kind::Niwaki => {
                let world = options.state.open_unread(&options.budget)?;
                Ok(Self::Niwaki(Box::new(world)))
            }
            Kind::RocksDb => Ok(Self::RocksDb(Box::new(rocksdb(folder, &options.budget)?))),
            Kind::Mdbx => Ok(Self::Mdbx(mdbx(folder, Mode::ReadOnly)?)),
        }
    }

    /// A reader for one thread, of the state as it is now.
    pub(super) fn reader(&self) -> Result<Reader<'_>> {
        match self {
            Self::Niwaki(world) => Ok(Reader::Niwaki(world.view_at_head()?)),
            Self::RocksDb(database) => Ok(Reader::RocksDb(database)),
            Self::Mdbx(environment) => {
                let transaction = environment.begin_ro_unsync()?;
                let table = transaction.open_db(None)?.dbi();
                Ok(Reader::Mdbx(Box::new(transaction), table))
            }
        }
    }
}

impl Reader<'_> {
    /// The value of a slot.
    pub(super) fn read(&self, address: &Address, slot: &U256) -> Result<U256> {
        let decoded = |row: Option<&[u8]>| match row {
            None => Ok(U256::ZERO),
            Some(row) => decode_value(row).map_err(|reason| eyre!(reason)),
        };
        match self {
            Self::Niwaki(view) => Ok(view.storage(address, slot)?),
            Self::RocksDb(database) => {
                let family = database
                    .cf_handle(Segment::Slots.name())
                    .ok_or_else(|| eyre!("no slots in the database"))?;
                let row = database.get_pinned_cf(family, row_key(address, slot))?;
                decoded(row.as_deref())
            }
            Self::Mdbx(transaction, table) => {
                let row: Option<Cow<'_, [u8]>> =
                    transaction.get(*table, &row_key(address, slot))?;
                decoded(row.as_deref())
            }
        }
    }
}

fn row_key(address: &Address, slot: &U256) -> [u8; 64] {
    let mut key = [0; 64];
    key[..32].copy_from_slice(keccak256(address).as_slice());
    key[32..].copy_from_slice(keccak256(B256::from(*slot)).as_slice());
    key
}

/// Our own database opened for reading, past everything of ours. A table says itself how it was
/// written; what a reader does with it is told here as the storage does. The file of options that
/// lies beside the tables is of no use for that: it does not keep the filters.
fn rocksdb(folder: &Path, budget: &Budget) -> Result<DB> {
    let path = folder.join("database");
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_lru_cache(budget.storage_bytes));
    table.set_bloom_filter(10.0, false);
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_top_level_index_and_filter(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    let mut options = rocksdb::Options::default();
    options.set_block_based_table_factory(&table);
    let families = Segment::ALL.map(|segment| (segment.name(), options.clone()));
    DB::open_cf_with_opts_for_read_only(&options, &path, families, false)
        .wrap_err_with(|| format!("can't open {} for reading", path.display()))
}

fn mdbx(folder: &Path, mode: Mode) -> Result<Environment> {
    let mut builder = Environment::builder();
    builder.set_flags(EnvironmentFlags {
        mode,
        // As for any store of random reads.
        no_rdahead: true,
        ..EnvironmentFlags::default()
    });
    builder.set_geometry(Geometry {
        size: Some(0..MDBX_MAX_BYTES),
        ..Geometry::default()
    });
    builder
        .open(folder)
        .wrap_err_with(|| format!("can't open {}", folder.display()))
}

/// Makes MDBX's copy of all slots of `world` in `folder`, unless it is there.
pub(super) fn make_mdbx(world: &WorldState, folder: &Path) -> Result<()> {
    let root = world.head().map(|head| head.root).unwrap_or_default();
    if folder.join("mdbx.dat").exists() {
        let environment = mdbx(folder, Mode::ReadOnly)?;
        let transaction = environment.begin_ro_unsync()?;
        let table = transaction.open_db(None)?.dbi();
        let row: Option<Vec<u8>> = transaction.get(table, MDBX_ROOT)?;
        if row.as_deref() == Some(root.as_slice()) {
            return Ok(());
        }
        drop(transaction);
        drop(environment);
        std::fs::remove_dir_all(folder)
            .wrap_err_with(|| format!("can't remove {}", folder.display()))?;
    }
    eprintln!("copying all slots to MDBX");
    std::fs::create_dir_all(folder).wrap_err_with(|| format!("can't make {}", folder.display()))?;
    let environment = mdbx(folder, Mode::default())?;
    let mut rows = world.database().prefix(Segment::Slots, &[]).peekable();
    while rows.peek().is_some() {
        let transaction = environment.begin_rw_unsync()?;
        let table = transaction.create_db(None, DatabaseFlags::empty())?;
        for row in rows.by_ref().take(MDBX_ROWS_AT_ONCE) {
            let (key, value) = row?;
            transaction.append(table, &key, &value)?;
        }
        transaction.commit()?;
    }
    let transaction = environment.begin_rw_unsync()?;
    let table = transaction.open_db(None)?;
    transaction.put(table, MDBX_ROOT, root.as_slice(), WriteFlags::empty())?;
    transaction.commit()?;
    Ok(())
}
