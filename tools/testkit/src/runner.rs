//! Lists fixture files and runs work on them in parallel.

use std::{
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
};

/// The `.json` files under `paths`, sorted; a path that is a file is returned whatever its name.
///
/// # Errors
/// The path that can't be listed, and the I/O error.
pub fn fixture_files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, (PathBuf, std::io::Error)> {
    let mut files = Vec::new();
    for path in paths {
        collect(path, true, &mut files).map_err(|error| (path.clone(), error))?;
    }
    Ok(files)
}

fn collect(path: &Path, is_argument: bool, files: &mut Vec<PathBuf>) -> Result<(), std::io::Error> {
    if !std::fs::metadata(path)?.is_dir() {
        if is_argument || path.extension().is_some_and(|ext| ext == "json") {
            files.push(path.to_owned());
        }
        return Ok(());
    }
    let mut entries: Vec<PathBuf> = std::fs::read_dir(path)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    entries.sort();
    for entry in entries {
        collect(&entry, false, files)?;
    }
    Ok(())
}

/// Runs `work` on every item on `jobs` threads and passes each result to `report` on the calling
/// thread, in order of completion.
pub fn run_parallel<T: Sync, R: Send>(
    jobs: usize,
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
    mut report: impl FnMut(&T, R),
) {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::sync_channel(1024);
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, items.len().max(1)) {
            let sender = sender.clone();
            let (next, work) = (&next, &work);
            scope.spawn(move || {
                // Relaxed: the counter only hands out indices.
                while let Some(index) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).filter(|index| *index < items.len())
                {
                    if sender.send((index, work(&items[index]))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (index, result) in receiver {
            report(&items[index], result);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_runs_once_on_0_1_3_and_2000_threads() {
        let items: Vec<u64> = (0..1000).collect();
        for jobs in [0, 1, 3, 2000] {
            let mut results = Vec::new();
            run_parallel(
                jobs,
                &items,
                |n| n * 2,
                |n, double| results.push((*n, double)),
            );
            results.sort_unstable();
            let expected: Vec<(u64, u64)> = items.iter().map(|n| (*n, n * 2)).collect();
            assert_eq!(results, expected);
        }
        run_parallel(
            4,
            &[] as &[u64],
            |n| *n,
            |_, _| panic!("no item, no report"),
        );
    }
}
