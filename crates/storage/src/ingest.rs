//! Many rows at once, without the log: sorted, written as tables (SST files), ingested whole.

use crate::fault::engine_fault;
use crate::{Batch, Database, Segment};
use niwaki_primitives::Fault;
use rocksdb::{IngestExternalFileOptions, SstFileWriter};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A row: number of its segment, key, value.
type SortedRow<'r> = (usize, &'r [u8], &'r [u8]);

/// The folder of the data path for files that are not part of the database yet.
pub(crate) fn staging_dir(data_path: &Path) -> PathBuf {
    data_path.join("loading")
}

impl Database {
    /// The folder that [`Database::create_staging_dir`] creates, whether or not it exists.
    pub fn staging_dir(&self) -> Option<&Path> {
        self.staging.as_deref()
    }

    /// Creates, if it is absent, the folder where a load of many rows may put files until
    /// [`Database::remove_staging_dir`]; `None` for a database in memory.
    ///
    /// # Errors
    /// A [`Fault`] of the disk.
    pub fn create_staging_dir(&self) -> Result<Option<&Path>, Fault> {
        let Some(folder) = self.staging.as_deref() else {
            return Ok(None);
        };
        fs::create_dir_all(folder).map_err(|error| Fault::io("create", folder, error))?;
        Ok(Some(folder))
    }

    /// Removes the staging folder and all files in it.
    ///
    /// # Errors
    /// A [`Fault`] of the disk.
    pub fn remove_staging_dir(&self) -> Result<(), Fault> {
        match self.staging.as_deref() {
            Some(folder) if folder.exists() => {
                fs::remove_dir_all(folder).map_err(|error| Fault::io("remove", folder, error))
            }
            _ => Ok(()),
        }
    }

    /// Writes the puts of `batch`, in any order; of two puts of one key the later one counts. Each segment
    /// becomes one file, ingested atomically and durably, but the segments are not ingested as one: after a
    /// failure the caller must be able to begin again. Cheapest where the key range of one call does not overlap
    /// that of any other: then the engine never has to merge them. Snapshots that are open see the rows too.
    ///
    /// # Errors
    /// A [`Fault`] of the disk or the engine.
    ///
    /// # Panics
    /// If `batch` has deletes.
    pub fn ingest(&self, batch: Batch) -> Result<(), Fault> {
        self.ingest_cut(batch, &[])
    }

    /// As [`Database::ingest`], but a file ends before each of `cuts`, in any order: where rows of another call lie between those of this
    /// one, no file of one spans them.
    ///
    /// # Errors
    /// A [`Fault`] of the disk or the engine.
    ///
    /// # Panics
    /// If `batch` has deletes.
    pub fn ingest_cut(&self, batch: Batch, cuts: &[(Segment, Vec<u8>)]) -> Result<(), Fault> {
        self.flush()?;
        self.ingest_tables(batch, cuts)
    }

    /// As [`Database::ingest`], but it does not wait for the batches that are pending: none of them may have any key of `batch`.
    ///
    /// # Errors
    /// A [`Fault`] of the disk or the engine.
    ///
    /// # Panics
    /// If `batch` has deletes.
    pub fn ingest_beside_pending(&self, batch: Batch) -> Result<(), Fault> {
        self.ingest_tables(batch, &[])
    }

    fn ingest_tables(&self, batch: Batch, cuts: &[(Segment, Vec<u8>)]) -> Result<(), Fault> {
        let Some(folder) = self.create_staging_dir()? else {
            return self.write(batch, false);
        };
        let mut rows: Vec<_> = batch
            .changes()
            .map(|(segment, key, value)| {
                let value = value.expect("only puts are ingested");
                (segment as usize, key, value)
            })
            .collect();
        // Stable: of equal keys the last put stays last.
        rows.sort_by_key(|(segment, key, _)| (*segment, *key));
        for segment in Segment::ALL {
            let start = rows.partition_point(|row| row.0 < segment as usize);
            let end = rows.partition_point(|row| row.0 <= segment as usize);
            if start < end {
                let cuts = cuts.iter().filter(|(of, _)| *of == segment);
                let cuts: BTreeSet<&[u8]> = cuts.map(|(_, key)| key.as_slice()).collect();
                self.ingest_segment(folder, segment, &rows[start..end], &cuts)?;
            }
        }
        Ok(())
    }

    fn ingest_segment(
        &self,
        folder: &Path,
        segment: Segment,
        rows: &[SortedRow<'_>],
        cuts: &BTreeSet<&[u8]>,
    ) -> Result<(), Fault> {
        let (mut files, mut rest) = (Vec::new(), rows);
        for cut in cuts.iter().map(Some).chain([None]) {
            let end = cut.map_or(rest.len(), |cut| rest.partition_point(|row| row.1 < *cut));
            let (table, after) = rest.split_at(end);
            if !table.is_empty() {
                let file = folder.join(format!("{}-{}.sst", segment.name(), files.len()));
                self.write_table(&file, segment, table)?;
                files.push(file);
            }
            rest = after;
        }
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        // Rows of a file that lies above nothing are numbered 0 then. With numbers of their own, which a snapshot that is open anywhere
        // would ask for, the engine rewrites each such file once that snapshot is gone.
        options.set_snapshot_consistency(false);
        let family = self.family(segment);
        self.engine
            .ingest_external_file_cf_opts(family, &options, files.iter().collect())
            .map_err(|error| engine_fault("ingest", segment.name(), error.as_ref()))?;
        // The engine has its own links to the files.
        for file in files.into_iter().filter(|file| file.exists()) {
            fs::remove_file(&file).map_err(|error| Fault::io("remove", &file, error))?;
        }
        Ok(())
    }

    fn write_table(
        &self,
        file: &Path,
        segment: Segment,
        rows: &[SortedRow<'_>],
    ) -> Result<(), Fault> {
        let fault = |error: rocksdb::Error| engine_fault("ingest", segment.name(), error.as_ref());
        let options = self.options.segment(segment);
        let mut writer = SstFileWriter::create(&options);
        writer.open(file).map_err(fault)?;
        for (at, (_, key, value)) in rows.iter().enumerate() {
            let is_last = rows.get(at + 1).is_none_or(|next| next.1 != *key);
            if is_last {
                writer.put(key, value).map_err(fault)?;
            }
        }
        writer.finish().map_err(fault)
    }

    /// Removes all rows of `segment`, whole files first; O(files). Not atomic: after a failure the caller must be able to begin again.
    ///
    /// # Errors
    /// A [`Fault`] of the disk or the engine.
    pub fn clear(&self, segment: Segment) -> Result<(), Fault> {
        let family = self.family(segment);
        // No key is longer than a hash and a path.
        let (first, end) = (&[][..], &[0xff; 128][..]);
        let fault = |error: rocksdb::Error| engine_fault("clear", segment.name(), error.as_ref());
        let delete_files = || {
            let deleted = self.engine.delete_file_in_range_cf(family, first, end);
            deleted.map_err(fault)
        };
        self.flush()?;
        delete_files()?;
        if self.prefix(segment, &[]).next().is_none() {
            return Ok(());
        }
        // Rows in memory and in the newest files. What is ingested afterwards would lie above them, so they are compacted away.
        let mut removal = rocksdb::WriteBatch::default();
        removal.delete_range_cf(family, first, end);
        self.engine.write(removal).map_err(fault)?;
        self.engine
            .compact_range_cf(family, None::<&[u8]>, None::<&[u8]>);
        // The compaction leaves a file with the removal alone: all that is ingested would be merged with it.
        delete_files()
    }

    /// Removes the rows with keys from `first` to `last`, both included, whole files first. Not atomic: after a failure the caller
    /// must be able to begin again.
    ///
    /// # Errors
    /// A [`Fault`] of the disk or the engine.
    pub fn remove_range(&self, segment: Segment, first: &[u8], last: &[u8]) -> Result<(), Fault> {
        let family = self.family(segment);
        self.flush()?;
        self.engine
            .delete_file_in_range_cf(family, first, last)
            .map_err(|error| engine_fault("clear", segment.name(), error.as_ref()))?;
        let mut batch = Batch::new();
        // The first key after `last`.
        let end = [last, &[0]].concat();
        for row in self.range(segment, first, Some(&end)) {
            batch.delete(segment, &row?.0);
            self.write_if_large(&mut batch)?;
        }
        self.write(batch, false)
    }
}
