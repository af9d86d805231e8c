//! What a look-up costs while batches wait for the engine.
//!
//! A large batch keeps the engine busy for some hundred milliseconds; what is written after it waits
//! until it is done, and rows are asked for meanwhile.

use super::Options;
use crate::stats::Spread;
use eyre::{Result, ensure};
use niwaki_storage::{Batch, Database, Options as StorageOptions, Segment, Snapshot};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde::Serialize;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

/// Batches that wait, the large one included.
const WAITING: [usize; 5] = [0, 1, 4, 8, 64];
/// Rows of the large batch.
const BUSY_ROWS: usize = 150_000;
/// Look-ups of a kind in a round.
const LOOKUPS: usize = 4_000;
/// Times that a round is tried, since the engine may be done too soon.
const TRIES: usize = 10;

/// The time of a look-up among so many batches that wait.
#[derive(Debug, Serialize)]
pub(super) struct Waiting {
    pub(super) batches: usize,
    /// Of a row of the oldest batch but the large one, over the rounds, ns; none if there is none.
    pub(super) oldest_ns: Option<Spread>,
    /// Of a row that is in no batch, in a segment without rows: the engine's answer is in it.
    pub(super) none_ns: Spread,
}

/// Measures all of [`WAITING`], in turn.
pub(super) fn measure(options: &Options) -> Result<Vec<Waiting>> {
    let mut times = vec![(Vec::new(), Vec::new()); WAITING.len()];
    for round in 0..options.rounds {
        for (at, batches) in WAITING.into_iter().enumerate() {
            let mut tries = 0..TRIES;
            let (oldest, none) = loop {
                ensure!(
                    tries.next().is_some(),
                    "the engine had {batches} batches before they were asked; measure on a quieter \
                     machine"
                );
                let folder = tempfile::tempdir_in(options.copies_folder())?;
                if let Some(found) = look_up(options, folder.path(), (round, batches))? {
                    break found;
                }
            };
            times[at].0.extend(oldest);
            times[at].1.push(none);
        }
    }
    let rows = WAITING.into_iter().zip(times);
    Ok(rows
        .map(|(batches, (oldest, none))| Waiting {
            batches,
            oldest_ns: (!oldest.is_empty()).then(|| Spread::of(oldest)),
            none_ns: Spread::of(none),
        })
        .collect())
}

/// The times of a row of the oldest batch and of one in none; `None` if the engine was too quick.
fn look_up(
    options: &Options,
    folder: &Path,
    (round, batches): (usize, usize),
) -> Result<Option<(Option<f64>, f64)>> {
    let mut random = SmallRng::seed_from_u64(round as u64);
    let mut key = || {
        let mut key = [0; 64];
        random.fill(&mut key[..]);
        key
    };
    let small = batches.saturating_sub(1);
    let keys: Vec<Vec<[u8; 64]>> = (0..small)
        .map(|_| (0..options.waiting_rows).map(|_| key()).collect())
        .collect();
    let others: Vec<[u8; 64]> = (0..LOOKUPS).map(|_| key()).collect();
    let database = Database::open(folder, &StorageOptions::default())?;
    let mut made: Vec<Batch> = keys.iter().map(|keys| batch(keys)).collect();
    if batches > 0 {
        let busy: Vec<[u8; 64]> = (0..BUSY_ROWS).map(|_| key()).collect();
        made.insert(0, batch(&busy));
    }
    for batch in made {
        database.write(batch, false)?;
    }
    let snapshot = database.snapshot();
    // The first look makes each batch ready, unless the writer has.
    time(&snapshot, Segment::Code, others.iter().take(1))?;
    let oldest = keys.first().map(|keys| {
        let asked = keys.iter().cycle().take(LOOKUPS);
        time(&snapshot, Segment::Slots, asked)
    });
    let none = time(&snapshot, Segment::Code, others.iter())?;
    let oldest = oldest.transpose()?;
    Ok((database.pending_batches() == batches).then_some((oldest, none)))
}

fn batch(keys: &[[u8; 64]]) -> Batch {
    let mut batch = Batch::new();
    for key in keys {
        batch.put(Segment::Slots, key, &key[..8]);
    }
    batch
}

/// The mean time of a look-up, ns.
fn time<'a>(
    snapshot: &Snapshot,
    segment: Segment,
    keys: impl Iterator<Item = &'a [u8; 64]>,
) -> Result<f64> {
    let (clock, mut count) = (Instant::now(), 0.0);
    for key in keys {
        black_box(snapshot.get(segment, key)?);
        count += 1.0;
    }
    Ok(clock.elapsed().as_nanos() as f64 / count)
}
