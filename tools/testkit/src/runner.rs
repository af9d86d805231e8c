//! Many files on many threads.

use std::{
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
};

/// Every file under `paths` whose name ends in `.json`, in order; a path to a file is taken as it
/// is.
///
/// # Errors
/// The path that can't be listed, and what the system said.
pub fn fixture_files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, (PathBuf, std::io::Error)> {
    let mut files = Vec::new();
    for path in paths {
        collect(path, true, &mut files).map_err(|error| (path.clone(), error))?;
    }
    Ok(files)
}

fn collect(path: &Path, given: bool, files: &mut Vec<PathBuf>) -> Result<(), std::io::Error> {
    if !std::fs::metadata(path)?.is_dir() {
        if given || path.extension().is_some_and(|ext| ext == "json") {
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

/// Runs `work` on every item, on `jobs` threads that take the next item as they become free, and
/// hands each result to `report` on this thread, in whatever order they come.
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
                // Relaxed: the counter hands out indices and orders nothing else.
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
    fn every_item_is_worked_on_once_whatever_the_number_of_threads() {
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
            let want: Vec<(u64, u64)> = items.iter().map(|n| (*n, n * 2)).collect();
            assert_eq!(results, want);
        }
        run_parallel(
            4,
            &[] as &[u64],
            |n| *n,
            |_, _| panic!("there is nothing to report"),
        );
    }
}
