//! Runs that grow, join, are shortened and survive.
#![expect(clippy::cast_possible_truncation, reason = "numbers below 1,000")]

use super::*;
use crate::tests::{empty_chain, headers_upon};
use proptest::prelude::*;

/// A tree: block 0 to 59, and a branch that leaves it at `fork`.
struct Tree {
    main: Vec<SealedHeader>,
    side: Vec<SealedHeader>,
}

impl Tree {
    fn new(fork: usize) -> Self {
        let main = headers_upon(B256::ZERO, 0, 60, 0);
        let parent = main[fork].hash;
        let side = headers_upon(parent, fork as u64 + 1, 20, 1);
        Self { main, side }
    }
}

fn id(header: &SealedHeader) -> BlockId {
    BlockId {
        number: header.header.number,
        hash: header.hash,
    }
}

/// Adds a target and all headers of its branch above `stored`, as a download does.
fn download(
    skeleton: &mut Skeleton,
    branch: &[SealedHeader],
    below: &[SealedHeader],
    stored: u64,
) -> usize {
    let target = branch.last().unwrap();
    skeleton.add_target(target.clone()).unwrap();
    let mut count = 0;
    loop {
        let path = skeleton.path(id(target)).unwrap().unwrap();
        let Some(number) = path.low.checked_sub(1).filter(|number| *number > stored) else {
            return count;
        };
        let all = branch.iter().chain(below);
        let mut next = all.filter(|h| h.header.number == number && h.hash == path.parent);
        let next = next.next().unwrap().clone();
        skeleton.extend(path.run, vec![next]).unwrap();
        count += 1;
    }
}

fn numbers(skeleton: &Skeleton, path: &Path) -> Vec<(u64, B256)> {
    let parts = path.parts.iter().rev();
    parts
        .flat_map(|part| (part.low..=part.high).map(|number| (part.run, number)))
        .map(|(run, number)| {
            let header = skeleton.header(run, number).unwrap().unwrap();
            (header.header.number, header.hash)
        })
        .collect()
}

fn expected<'h>(headers: impl IntoIterator<Item = &'h SealedHeader>) -> Vec<(u64, B256)> {
    let headers = headers.into_iter();
    headers.map(|h| (h.header.number, h.hash)).collect()
}

#[test]
fn a_branch_joins_the_run_that_it_leaves_and_neither_is_asked_for_again() {
    let tree = Tree::new(40);
    let mut skeleton = Skeleton::in_memory();
    assert_eq!(download(&mut skeleton, &tree.main, &[], 9), 49);
    assert_eq!(download(&mut skeleton, &tree.side, &tree.main, 9), 19);
    for _ in 0..3 {
        assert_eq!(download(&mut skeleton, &tree.main, &[], 9), 0);
        assert_eq!(download(&mut skeleton, &tree.side, &tree.main, 9), 0);
    }
    let path = skeleton.path(id(&tree.side[19])).unwrap().unwrap();
    let all = tree.main[10..=40].iter().chain(&tree.side);
    assert_eq!(numbers(&skeleton, &path), expected(all));
    assert_eq!(
        (path.count(), path.low, path.parent),
        (51, 10, tree.main[9].hash)
    );
}

#[test]
fn a_child_of_the_head_extends_its_run() {
    let tree = Tree::new(40);
    let mut skeleton = Skeleton::in_memory();
    download(&mut skeleton, &tree.main[..50], &[], 9);
    for header in &tree.main[50..] {
        skeleton.add_target(header.clone()).unwrap();
    }
    assert_eq!(skeleton.runs.len(), 1);
    let path = skeleton.path(id(&tree.main[59])).unwrap().unwrap();
    assert_eq!(numbers(&skeleton, &path), expected(&tree.main[10..]));
    assert_eq!(skeleton.path(id(&tree.side[0])).unwrap(), None);
}

#[test]
fn stored_blocks_leave_the_skeleton_and_the_other_branch_keeps_its_own_headers() {
    let tree = Tree::new(40);
    let mut skeleton = Skeleton::in_memory();
    download(&mut skeleton, &tree.main, &[], 9);
    download(&mut skeleton, &tree.side, &tree.main, 9);
    let path = skeleton.path(id(&tree.side[19])).unwrap().unwrap();
    skeleton.remove_stored(&path, id(&tree.main[30])).unwrap();
    let rest = skeleton.path(id(&tree.side[19])).unwrap().unwrap();
    let all = tree.main[31..=40].iter().chain(&tree.side);
    assert_eq!(numbers(&skeleton, &rest), expected(all));
    skeleton.remove_stored(&path, id(&tree.side[19])).unwrap();
    assert_eq!(skeleton.path(id(&tree.side[19])).unwrap(), None);
    // Of the main branch what lies above the fork is left, upon a stored block.
    let main = skeleton.path(id(&tree.main[59])).unwrap().unwrap();
    assert_eq!(numbers(&skeleton, &main), expected(&tree.main[41..]));
    skeleton.clear().unwrap();
    assert!(skeleton.is_empty());
}

#[test]
fn of_17_runs_the_oldest_short_one_goes() {
    let tree = Tree::new(40);
    let mut skeleton = Skeleton::in_memory();
    download(&mut skeleton, &tree.main, &[], 9);
    for salt in 0..16 {
        let other = headers_upon(tree.main[50].hash, 51, 1, 100 + salt);
        skeleton.add_target(other[0].clone()).unwrap();
    }
    assert_eq!(skeleton.runs.len(), MAX_RUNS);
    assert!(skeleton.has(59, &tree.main[59].hash).unwrap());
    let Store::Memory(headers) = &skeleton.store else {
        panic!("in memory");
    };
    assert_eq!(headers.len(), 50 + MAX_RUNS - 1);
}

proptest! {
    #[test]
    fn a_skeleton_opened_again_is_the_one_that_was_kept(
        fork in 11_usize..59, stored in 9_u64..59, steps in prop::collection::vec(0_u8..4, 1..12)
    ) {
        let tree = Tree::new(fork);
        let chain = empty_chain(None);
        let mut kept = Skeleton::of_chain(Arc::clone(&chain)).unwrap();
        let mut memory = Skeleton::in_memory();
        for step in steps {
            for skeleton in [&mut kept, &mut memory] {
                match step {
                    0 => drop(download(skeleton, &tree.main, &[], 9)),
                    1 => drop(download(skeleton, &tree.side, &tree.main, 9)),
                    2 => drop(download(skeleton, &tree.main[..50], &[], 9)),
                    _ => {
                        let path = skeleton.path(id(&tree.main[59])).unwrap();
                        if let Some(path) = path {
                            skeleton.remove_stored(&path, id(&tree.main[stored as usize])).unwrap();
                        }
                    }
                }
            }
            // A restart.
            let opened = Skeleton::of_chain(Arc::clone(&chain)).unwrap();
            prop_assert_eq!(&opened.runs, &kept.runs);
            prop_assert_eq!(&opened.runs, &memory.runs);
            for target in [&tree.main[59], &tree.side[19], &tree.main[49]] {
                let paths = [&opened, &memory].map(|skeleton| {
                    let path = skeleton.path(id(target)).unwrap();
                    path.map(|path| (numbers(skeleton, &path), path.clone()))
                });
                prop_assert_eq!(&paths[0], &paths[1]);
                // What a path has is linked.
                if let Some((numbers, path)) = &paths[0] {
                    let first = numbers.first().map(|first| first.0);
                    prop_assert_eq!(first, Some(path.low));
                    prop_assert!(numbers.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0));
                }
            }
        }
        kept.clear().unwrap();
        prop_assert_eq!(chain.header_runs().unwrap(), []);
    }
}
