//! The end of a state that came from several pivots: nodes of the last one's tries are asked for where ours differ.

use super::threads;
use crate::progress::SyncState;
use crate::session::{Context, Failure, Interrupt};
use niwaki_state::{HealPass, StateDownload};

/// So many nodes are asked for at a time, of all peers together.
const NODES_TOGETHER: usize = 2_048;

impl Context<'_> {
    /// Heals until the tries have the pivot's root.
    pub(super) fn heal(&self, download: &StateDownload<'_>) -> Result<(), Interrupt> {
        self.report(|progress, now_ms| progress.enter(SyncState::Heal, now_ms));
        while let Some(mut pass) = download.begin_heal() {
            if !self.gives_nodes() {
                let reason = "it has to be healed, and no peer gives nodes of tries (snap/1)";
                return Err(Failure::NoState(reason.to_owned()).into());
            }
            let compared = self.compare(download, &mut pass);
            // What was found counts, also if not all was; but accounts must have their codes.
            let codes = pass.missing_codes()?;
            if compared.is_err() && !codes.is_empty() {
                return compared;
            }
            self.download_codes(download, &codes)?;
            pass.apply(threads())?;
            compared?;
        }
        Ok(())
    }

    fn compare(
        &self,
        download: &StateDownload<'_>,
        pass: &mut HealPass<'_>,
    ) -> Result<(), Interrupt> {
        let fetcher = self.fetcher(download);
        loop {
            self.tick()?;
            if self.is_old(&download.pivot())? {
                return Err(Interrupt::Retargeted);
            }
            let nodes = pass.take(NODES_TOGETHER);
            if nodes.is_empty() {
                return Ok(());
            }
            fetcher.nodes(&nodes, &mut |node, rlp| pass.compare(node, rlp))?;
            let (left, found) = (pass.pending() as u64, pass.changes() as u64);
            self.report(|progress, _| {
                progress.update(|status| {
                    status.open_items = left;
                    status.healed_nodes += nodes.len() as u64;
                    status.differing = found;
                });
            });
        }
    }
}
