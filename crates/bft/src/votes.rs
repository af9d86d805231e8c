//! On whom this validator votes: kept in a file, until the operator discards the vote.
//!
//! ```text
//! pending-votes      +0x.. to add, -0x.. to drop, a line each
//! ```

use niwaki_chain::{Chain, StoredHeader};
use niwaki_primitives::{Address, Fault};
use niwaki_rules::Vote;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

const FILE: &str = "pending-votes";

/// See the module.
#[derive(Debug)]
pub struct PendingVotes {
    path: PathBuf,
    votes: Mutex<BTreeMap<Address, bool>>,
}

impl PendingVotes {
    /// Reads those of a folder, which is made if it is missing. Lines that can't be read are left out.
    ///
    /// # Errors
    /// A [`Fault`] of the disk.
    pub fn open(folder: &Path) -> Result<Self, Fault> {
        fs::create_dir_all(folder).map_err(|error| Fault::io("make", folder, error))?;
        let path = folder.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Fault::io("read", &path, error)),
        };
        let votes = text.lines().filter_map(|line| {
            let (kind, address) = line.split_at_checked(1)?;
            let is_add = match kind {
                "+" => true,
                "-" => false,
                _ => return None,
            };
            Some((address.parse().ok()?, is_add))
        });
        Ok(Self {
            votes: Mutex::new(votes.collect()),
            path,
        })
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Address, bool>> {
        self.votes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// On whom it votes; `true`: to add it.
    pub fn list(&self) -> Vec<(Address, bool)> {
        let all = self.all();
        all.iter()
            .map(|(address, is_add)| (*address, *is_add))
            .collect()
    }

    /// Votes to add or to drop an account.
    ///
    /// # Errors
    /// A [`Fault`] of the disk; then the vote is as before.
    pub fn propose(&self, address: Address, is_add: bool) -> Result<(), Fault> {
        self.change(|votes| {
            votes.insert(address, is_add);
        })
    }

    /// Votes on an account no more.
    ///
    /// # Errors
    /// A [`Fault`] of the disk; then the vote is as before.
    pub fn discard(&self, address: &Address) -> Result<(), Fault> {
        self.change(|votes| {
            votes.remove(address);
        })
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<Address, bool>)) -> Result<(), Fault> {
        let mut votes = self.all();
        let mut changed = votes.clone();
        change(&mut changed);
        let mut text = String::new();
        for (address, is_add) in &changed {
            let kind = if *is_add { '+' } else { '-' };
            text.push(kind);
            text.push_str(&format!("{address:#x}\n"));
        }
        let part = self.path.with_extension("part");
        let written = fs::write(&part, text).and_then(|()| fs::rename(&part, &self.path));
        written.map_err(|error| Fault::io("write", &self.path, error))?;
        *votes = changed;
        Ok(())
    }

    /// The vote for the child of a block: each of those that are not cast yet in turn.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn next(
        &self,
        chain: &Chain,
        parent: &StoredHeader,
        voter: &Address,
    ) -> Result<Option<Vote>, Fault> {
        let wanted = self.list().into_iter();
        let wanted: Vec<Vote> = wanted
            .map(|(validator, is_add)| Vote { validator, is_add })
            .collect();
        if wanted.is_empty() {
            return Ok(None);
        }
        let open = chain.open_votes(parent, voter, &wanted)?;
        let number = usize::try_from(parent.id.number).unwrap_or_default();
        Ok(number
            .checked_rem(open.len())
            .and_then(|index| open.get(index))
            .copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn votes_survive_a_restart_until_they_are_discarded() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = [1, 2].map(Address::repeat_byte);
        let votes = PendingVotes::open(folder.path()).unwrap();
        votes.propose(first, true).unwrap();
        votes.propose(second, true).unwrap();
        votes.propose(second, false).unwrap();
        let again = PendingVotes::open(folder.path()).unwrap();
        assert_eq!(again.list(), [(first, true), (second, false)]);
        again.discard(&first).unwrap();
        again.discard(&first).unwrap();
        let again = PendingVotes::open(folder.path()).unwrap();
        assert_eq!(again.list(), [(second, false)]);
        fs::write(folder.path().join(FILE), "?\n\n+0x12\n").unwrap();
        assert_eq!(PendingVotes::open(folder.path()).unwrap().list(), []);
    }
}
