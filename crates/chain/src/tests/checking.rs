//! A check finds every row that does not fit the others.

use super::*;
use niwaki_storage::Batch;

/// The segments in which a check finds problems after `damage`.
fn found(chain: &Chain, damage: impl FnOnce(&mut Batch)) -> Vec<&'static str> {
    let mut batch = Batch::new();
    damage(&mut batch);
    chain.database().write(batch, false).unwrap();
    let mut segments = Vec::new();
    let summary = chain
        .check(&mut |problem| segments.push(problem.segment))
        .unwrap();
    assert_eq!(summary.problems, segments.len() as u64);
    segments
}

fn chain() -> (Chain, Vec<Block>) {
    let (chain, blocks) = (open(None), blocks());
    import_all(&chain, &blocks);
    assert_clean(&chain);
    (chain, blocks)
}

#[test]
fn a_row_of_another_block_is_found_in_every_segment() {
    let (chain, _) = chain();
    let (one, other) = (chain.header_at(20).unwrap().unwrap(), 21);
    let other = chain.header_at(other).unwrap().unwrap();
    let (key, wrong) = (one.id.to_key(), other.id.to_key());
    for segment in [Segment::Headers, Segment::Bodies, Segment::Receipts] {
        let own = chain.database().get(segment, &key).unwrap().unwrap();
        let row = chain.database().get(segment, &wrong).unwrap().unwrap();
        let segments = found(&chain, |batch| batch.put(segment, &key, &row));
        assert!(segments.contains(&segment.name()), "{segments:?}");
        for damaged in [&own[..own.len() - 1], &[]] {
            let segments = found(&chain, |batch| batch.put(segment, &key, damaged));
            assert_eq!(segments, [segment.name()]);
        }
        let segments = found(&chain, |batch| batch.delete(segment, &key));
        assert_eq!(segments, [segment.name()]);
        assert_eq!(
            found(&chain, |batch| batch.put(segment, &key, &own)),
            [""; 0]
        );
    }
}

#[test]
fn an_index_that_leads_astray_is_found() {
    let (chain, blocks) = chain();
    let at = |number: u64| chain.header_at(number).unwrap().unwrap().id;
    let (canonical, numbers) = (Segment::Canonical, Segment::Numbers);
    let (first, second) = (20_u64.to_be_bytes(), 21_u64.to_be_bytes());
    let (one, other) = (at(20), at(21));

    let lost = found(&chain, |batch| batch.delete(canonical, &first));
    assert_eq!(lost, [canonical.name()]);
    // Block 21 stands in the place of block 20, which its row in `numbers` contradicts.
    let astray = found(&chain, |batch| {
        batch.put(canonical, &first, &other.hash[..])
    });
    assert!(astray.contains(&Segment::Headers.name()), "{astray:?}");
    let mended = found(&chain, |batch| batch.put(canonical, &first, &one.hash[..]));
    assert_eq!(mended, [""; 0]);

    let wrong = found(&chain, |batch| batch.put(numbers, &one.hash[..], &second));
    assert!(wrong.contains(&numbers.name()), "{wrong:?}");
    found(&chain, |batch| batch.put(numbers, &one.hash[..], &first));

    let beyond = 55_u64.to_be_bytes();
    let dangling = found(&chain, |batch| batch.put(canonical, &beyond, &one.hash[..]));
    assert_eq!(dangling, [canonical.name()]);
    found(&chain, |batch| batch.delete(canonical, &beyond));

    let transactions = blocks.iter().flat_map(|block| &block.body.transactions);
    let hash = *transactions.last().unwrap().tx_hash();
    let places = Segment::Transactions;
    let absent = found(&chain, |batch| batch.delete(places, &hash[..]));
    assert_eq!(absent, [places.name()]);
}

#[test]
fn a_past_state_that_an_archive_has_lost_is_found() {
    let mut config = config(None, &genesis());
    config.state.archive = true;
    let chain = open_eager(config);
    import_all(&chain, &blocks());
    assert_clean(&chain);
    let history = Segment::AccountTrieHistory;
    // The roots of the account trie before blocks 20 and 21, which are those after 19 and 20.
    let root_before = |number: u64| [&[0xff][..], &number.to_be_bytes()].concat();
    let (key, other) = (root_before(20), root_before(21));
    let own = chain.database().get(history, &key).unwrap().unwrap();
    let row = chain.database().get(history, &other).unwrap().unwrap();

    let lost = found(&chain, |batch| batch.delete(history, &key));
    assert_eq!(lost, [Segment::AccountTrie.name()]);
    let wrong = found(&chain, |batch| batch.put(history, &key, &row));
    assert_eq!(wrong, [Segment::AccountTrie.name()]);
    let mended = found(&chain, |batch| batch.put(history, &key, &own));
    assert_eq!(mended, [""; 0]);
}
