//! What a process leaves that ends at any moment, and how the next one goes on.

use super::*;
use niwaki_chain::BlockId;
use std::fs;

#[test]
fn a_full_sync_goes_on_after_a_restart_without_the_headers_that_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let target = last(main_branch());
    let header = crate::tests::sealed_header(main_branch()[399].header.clone());
    {
        let world = World::new(12);
        world.connect(Script::Honest, main_branch());
        let node = Node::new(empty_chain(Some(dir.path())), world);
        node.choose(target);
        let mut owner = node.owner();
        let id = BlockId {
            number: BLOCKS,
            hash: target,
        };
        owner.stored.add_target(header).unwrap();
        let Owner {
            context, stored, ..
        } = &mut owner;
        context.download_headers(stored, id, None).unwrap();
    }
    let world = World::new(13);
    world.connect(Script::Honest, main_branch());
    let node = Node::new(empty_chain(Some(dir.path())), world);
    node.choose(target);
    let mut owner = node.owner();
    assert!(!owner.stored.is_empty());
    node.run(&mut owner, |node| node.head() == BLOCKS);
    let requests = node.world.take_requests();
    let headers = requests.iter().filter(|request| match request {
        Request::Headers { limit, .. } => *limit > 1,
        _ => false,
    });
    assert_eq!(headers.count(), 0, "{requests:?}");
    assert_eq!(node.consensus.chain().header_runs().unwrap(), []);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The write-ahead log of the database.
fn log(path: &Path) -> (std::path::PathBuf, u64) {
    let entries = fs::read_dir(path.join("database")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let logs = paths.filter(|path| path.extension().is_some_and(|e| e == "log"));
    let sized = logs.map(|path| (path.clone(), fs::metadata(&path).unwrap().len()));
    sized.max_by_key(|(_, bytes)| *bytes).unwrap()
}

/// Each run has all its headers, linked from its head down.
fn assert_runs_are_whole(chain: &Chain) -> usize {
    let runs = chain.header_runs().unwrap();
    for run in &runs {
        let mut expected = run.head.hash;
        for number in (run.tail..=run.head.number).rev() {
            let (hash, header) = chain.run_header(run.run, number).unwrap().unwrap();
            assert_eq!(
                (hash, header.hash_slow(), header.number),
                (expected, expected, number)
            );
            expected = header.parent_hash;
        }
        assert_eq!(expected, run.parent);
    }
    runs.len()
}

/// A full sync to the end of the main branch.
fn sync_fully(chain: &Arc<Chain>, seed: u64) {
    let world = World::new(seed);
    world.connect(Script::Honest, main_branch());
    let node = Node::new(Arc::clone(chain), world);
    node.choose(last(main_branch()));
    let mut owner = node.owner();
    let target = crate::tests::sealed_header(main_branch()[399].header.clone());
    owner.stored.add_target(target).unwrap();
    node.run(&mut owner, |node| node.head() == BLOCKS);
    assert!(owner.stored.is_empty());
}

#[test]
fn a_kill_at_any_moment_leaves_whole_runs_and_a_chain_from_which_the_sync_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    let chain = empty_chain(Some(&whole));
    let begin = log(&whole).1;
    // Each block reaches the log on its own.
    let own = Arc::downgrade(&chain);
    chain.on_head(Box::new(move |_| {
        if let Some(chain) = own.upgrade() {
            chain.sync().unwrap();
        }
    }));
    sync_fully(&chain, 17);
    chain.sync().unwrap();
    drop(chain);
    let (_, end) = log(&whole);

    let (mut heads, mut with_runs) = (Vec::new(), 0);
    for at in 0..16 {
        let torn = dir.path().join("torn");
        copy(&whole, &torn);
        let file = fs::OpenOptions::new()
            .write(true)
            .open(log(&torn).0)
            .unwrap();
        file.set_len(begin + (end - begin) * at / 16).unwrap();
        let chain = empty_chain(Some(&torn));
        heads.push(chain.head().id.number);
        with_runs += assert_runs_are_whole(&chain).min(1);
        sync_fully(&chain, at);
        assert_runs_are_whole(&chain);
        assert_clean(&chain);
        drop(chain);
        fs::remove_dir_all(torn).unwrap();
    }
    heads.dedup();
    // Some cuts were while headers came, some while blocks did.
    assert!(heads.len() > 2 && with_runs > 4, "{heads:?}, {with_runs}");
}
