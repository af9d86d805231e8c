//! A state that comes in parts, and the chain that goes on from it.

use super::*;
use crate::{DownloadedBlock, StateHead};
use niwaki_state::{KeyRange, StateDownload, StatePart, TrieAccount};

/// A chain of 40 blocks.
pub(super) fn source() -> Chain {
    let chain = open(None);
    import_all(&chain, &blocks()[..40]);
    chain
}

pub(super) fn pivot(source: &Chain) -> StateHead {
    let head = source.head();
    StateHead {
        block: head.id,
        root: head.header.state_root,
    }
}

/// The state of the head between two keys.
fn part(source: &Chain, range: KeyRange) -> StatePart {
    let view = source.view_at_head().unwrap();
    let (mut part, mut accounts) = (StatePart::default(), Vec::new());
    let visit = &mut |key: &B256, account: Option<TrieAccount>| {
        let account = account.filter(|_| range.contains(key));
        accounts.extend(account.map(|account| (*key, account)));
        range.contains(key)
    };
    view.accounts_from(&range.first, visit).unwrap();
    for (key, account) in &accounts {
        part.add_slots(key, &view.slots_by_key(key).unwrap());
        // Its trie rows do not come with it, and are all made in the end.
        part.came_in_ranges(*key);
        if let Some(code) = source.code(&account.code_hash).unwrap() {
            part.add_code(&account.code_hash, &code);
        }
    }
    part.add_accounts(&accounts);
    part.accounts_came(range);
    part
}

pub(super) fn downloaded(
    source: &Chain,
    numbers: std::ops::RangeInclusive<u64>,
) -> Vec<DownloadedBlock> {
    let block = |number| {
        let header = source.header_at(number).unwrap().unwrap();
        let hash = header.id.hash;
        DownloadedBlock {
            body: source.body(&hash).unwrap().unwrap(),
            receipts: source.receipts(&hash).unwrap().unwrap(),
            access_list: source.block_access_list(&hash).unwrap(),
            header,
        }
    };
    numbers.map(block).collect()
}

pub(super) fn fill(download: &StateDownload<'_>, source: &Chain, parts: usize) {
    for range in &download.remaining().accounts {
        for piece in range.split(16).into_iter().take(parts) {
            download.write(part(source, piece)).unwrap();
        }
    }
}

#[test]
fn a_chain_opens_without_its_state_goes_on_and_imports_from_the_pivot() {
    let source = source();
    let dir = tempfile::tempdir().unwrap();
    let genesis_hash = {
        let chain = open(Some(dir.path()));
        let download = chain.begin_state_download(pivot(&source)).unwrap();
        fill(&download, &source, 5);
        assert!(!chain.has_state());
        assert!(chain.view_at_head().is_err());
        chain.genesis_hash()
    };
    // As after a restart.
    let chain = open(Some(dir.path()));
    assert!(!chain.has_state() && chain.has_state_download().unwrap());
    assert_eq!(chain.head().id.hash, genesis_hash);
    let download = chain.resume_state_download().unwrap().unwrap();
    assert_eq!(download.pivot(), pivot(&source));
    fill(&download, &source, usize::MAX);
    assert!(download.complete(2, &mut |_, _| true).unwrap());
    let blocks = downloaded(&source, 31..=40);
    chain.finish_state_download(download, &blocks).unwrap();
    assert!(chain.has_state() && !chain.has_state_download().unwrap());
    assert_eq!(
        (chain.head(), chain.first_block().unwrap()),
        (source.head(), 31)
    );
    assert_clean(&chain);
    drop(chain);
    let chain = open(Some(dir.path()));
    assert_eq!(chain.head(), source.head());
    import_all(&chain, &super::blocks()[40..]);
    assert_eq!(chain.head().id.hash, HEAD);
    assert_clean(&chain);
}

#[test]
fn a_chain_without_its_state_refuses_blocks_without_a_panic() {
    let source = source();
    let chain = open(None);
    let _download = chain.begin_state_download(pivot(&source)).unwrap();
    let refused = chain.import(blocks()[0].clone());
    assert!(matches!(refused, Err(ImportError::Fault(_))), "{refused:?}");
}
