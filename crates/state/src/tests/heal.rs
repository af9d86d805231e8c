//! Parts of several pivots, healed into the state of one.

use super::download::{Source, download_all, open, rows};
use super::*;
use crate::tries::disk_trie::{DiskTrie, RowSource};
use crate::{DifferingNode, HealError, HealPass, StateDownload, StatePart};
use niwaki_trie::node_at;

/// The node as a peer gives it.
fn node_of(source: &Source, node: &DifferingNode) -> Vec<u8> {
    let trie = DiskTrie::new(RowSource::Latest(source.world.database()), &[]);
    let root = match node.owner {
        None => source.head.root,
        Some(owner) => {
            let mut accounts = source.accounts.iter();
            let account = accounts.find(|(key, _)| *key == owner).unwrap();
            account.1.storage_root
        }
    };
    let found = node_at(&trie, node.owner, root, &node.path).unwrap();
    let mut rlp = Vec::new();
    found.unwrap().encode(&mut rlp);
    rlp
}

/// Compares so many nodes, or all.
fn compare(pass: &mut HealPass<'_>, source: &Source, most: usize) {
    let mut left = most;
    while left > 0 {
        let nodes = pass.take(left.min(7));
        if nodes.is_empty() {
            return;
        }
        left -= nodes.len();
        for node in &nodes {
            pass.compare(node, &node_of(source, node)).unwrap();
        }
    }
}

fn put_codes(download: &StateDownload<'_>, source: &Source, hashes: &[B256]) {
    let mut part = StatePart::default();
    for hash in hashes {
        let code = source.world.database();
        let code = code.get(Segment::Code, hash.as_slice()).unwrap();
        part.add_code(hash, &code.unwrap());
    }
    download.write(part).unwrap();
}

/// A pass; all of it, or the beginning.
fn pass(download: &StateDownload<'_>, source: &Source, most: usize, threads: usize) {
    let Some(mut pass) = download.begin_heal() else {
        return;
    };
    compare(&mut pass, source, most);
    put_codes(download, source, &pass.missing_codes().unwrap());
    pass.apply(threads).unwrap();
}

fn build(download: &StateDownload<'_>) {
    assert!(download.complete(2, &mut |_, _| true).unwrap());
}

fn assert_whole(world: &WorldState, source: &Source) {
    let download = world.resume_download().unwrap().unwrap();
    assert_eq!(download.own_root(), Some(source.head.root));
    download.finish(Batch::new()).unwrap();
    assert_eq!(rows(world), rows(&source.world));
    assert_clean(world);
}

#[test]
fn a_mixture_of_several_states_becomes_that_of_the_last_whatever_comes_between() {
    for seed in 0..16 {
        let mut rng = StdRng::seed_from_u64(1_000 + seed);
        let mut source = Source::new(&mut rng);
        let grow = |source: &mut Source, rng: &mut StdRng| {
            for _ in 0..rng.random_range(1..6) {
                advance(rng, &source.world, &mut source.state, 0);
            }
            source.read();
        };
        let folder = tempfile::tempdir().unwrap();
        let mut sink = open(folder.path());
        let mut download = sink.begin_download(source.head).unwrap();
        for _ in 0..4 {
            let parts = source.parts(&download.remaining(), &mut rng);
            let written = parts.len() / 2;
            for part in parts.into_iter().take(written) {
                download.write(part).unwrap();
            }
            grow(&mut source, &mut rng);
            download.replace_pivot(source.head).unwrap();
            drop(sink);
            sink = open(folder.path());
            download = sink.resume_download().unwrap().unwrap();
            assert_eq!(download.pivot(), source.head);
        }
        download_all(&download, &source, &mut rng);
        build(&download);
        for _ in 0..6 {
            // Parts of passes, other pivots, kills.
            let threads = rng.random_range(1..4);
            pass(&download, &source, rng.random_range(0..30), threads);
            if rng.random() {
                grow(&mut source, &mut rng);
                download.replace_pivot(source.head).unwrap();
            }
            if rng.random() {
                if let Some(mut pass) = download.begin_heal() {
                    compare(&mut pass, &source, 20);
                }
                drop(sink);
                sink = open(folder.path());
                download = sink.resume_download().unwrap().unwrap();
            }
        }
        pass(&download, &source, usize::MAX, 2);
        assert_whole(&sink, &source);
    }
}

#[test]
fn a_whole_state_becomes_an_earlier_one() {
    for seed in 0..6 {
        let source = Source::new(&mut StdRng::seed_from_u64(1_050 + seed));
        let mut rng = StdRng::seed_from_u64(1_050 + seed);
        let mut later = Source::new(&mut rng);
        assert_eq!(later.head, source.head);
        for _ in 0..seed {
            advance(&mut rng, &later.world, &mut later.state, 0);
        }
        later.read();
        let folder = tempfile::tempdir().unwrap();
        let sink = open(folder.path());
        let download = sink.begin_download(later.head).unwrap();
        download_all(&download, &later, &mut rng);
        build(&download);
        download.replace_pivot(source.head).unwrap();
        assert_eq!(download.begin_heal().is_some(), seed > 0);
        pass(&download, &source, usize::MAX, 1);
        assert_whole(&sink, &source);
    }
}

#[test]
fn another_node_than_was_asked_for_is_refused() {
    let mut rng = StdRng::seed_from_u64(1_060);
    let mut source = Source::new(&mut rng);
    let folder = tempfile::tempdir().unwrap();
    let sink = open(folder.path());
    let download = sink.begin_download(source.head).unwrap();
    download_all(&download, &source, &mut rng);
    build(&download);
    advance(&mut rng, &source.world, &mut source.state, 0);
    source.read();
    download.replace_pivot(source.head).unwrap();
    let mut pass = download.begin_heal().unwrap();
    let root = pass.take(1).remove(0);
    let mut rlp = node_of(&source, &root);
    pass.compare(&root, &rlp).unwrap();
    let others = pass.pending();
    rlp[5] ^= 1;
    for bytes in [&rlp[..], &[], &[0xc0]] {
        let refused = pass.compare(&root, bytes);
        assert!(matches!(refused, Err(HealError::OtherNode)), "{refused:?}");
    }
    assert_eq!((pass.pending(), pass.changes()), (others, 0));
}
