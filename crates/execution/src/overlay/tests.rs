//! What an overlay shows, and how it differs from the state below.

use super::*;
use niwaki_testkit::MemoryState;

const A: Address = Address::repeat_byte(0xaa);
const B: Address = Address::repeat_byte(0xbb);

fn one() -> U256 {
    U256::from(1)
}

fn base() -> MemoryState {
    let mut state = MemoryState::default();
    let diff = StateDiff {
        accounts: vec![(
            A,
            AccountDiff {
                new: Some(Account {
                    balance: U256::from(7),
                    ..Account::EMPTY
                }),
                slots: vec![(
                    one(),
                    SlotDiff {
                        new: U256::from(5),
                        ..SlotDiff::default()
                    },
                )],
                ..AccountDiff::default()
            },
        )],
        ..StateDiff::default()
    };
    state.apply(&diff);
    state
}

#[test]
fn what_is_not_overridden_shows_through() {
    let base = base();
    let mut overlay = Overlay::new(&base, 9);
    overlay
        .change_account(&A, |account| account.nonce = 3)
        .unwrap();
    let account = overlay.account(&A).unwrap().unwrap();
    assert_eq!((account.nonce, account.balance), (3, U256::from(7)));
    assert_eq!(overlay.storage(&A, &one()).unwrap(), U256::from(5));
    assert_eq!(overlay.account(&B).unwrap(), None);
    assert_eq!(overlay.block_hash(10).unwrap(), B256::ZERO);
    overlay.set_block_hash(10, B256::repeat_byte(1));
    assert_eq!(overlay.block_hash(10).unwrap(), B256::repeat_byte(1));
}

#[test]
fn a_cleared_storage_holds_only_what_is_set_after() {
    let base = base();
    let mut overlay = Overlay::new(&base, 9);
    overlay.clear_storage(&A).unwrap();
    assert_eq!(overlay.storage(&A, &one()).unwrap(), U256::ZERO);
    assert!(!overlay.has_storage(&A).unwrap());
    overlay.set_slot(&A, U256::from(2), one()).unwrap();
    assert!(overlay.has_storage(&A).unwrap());
    let diff = overlay.diff();
    assert!(diff.accounts[0].1.storage_wiped);
    assert_eq!(diff.accounts[0].1.slots.len(), 1);
}

#[test]
fn an_overlay_that_changes_nothing_differs_in_nothing() {
    let base = base();
    let mut overlay = Overlay::new(&base, 9);
    overlay.change_account(&A, |_| ()).unwrap();
    overlay.set_slot(&A, one(), U256::from(5)).unwrap();
    assert!(overlay.diff().is_empty());
    overlay.set_code(&B, Bytes::from_static(&[0])).unwrap();
    let diff = overlay.diff();
    assert_eq!(diff.accounts.len(), 1);
    assert_eq!(diff.codes.len(), 1);
    assert_eq!(
        overlay.code(&diff.codes[0].0).unwrap(),
        Bytes::from_static(&[0])
    );
}

#[test]
fn changes_of_one_run_after_another_add_up() {
    let base = base();
    let mut overlay = Overlay::new(&base, 9);
    let step = |prior: u64, new: u64| StateDiff {
        accounts: vec![(
            A,
            AccountDiff {
                prior: base.account(&A).unwrap(),
                new: base.account(&A).unwrap(),
                storage_wiped: false,
                slots: vec![(
                    one(),
                    SlotDiff {
                        prior: U256::from(prior),
                        new: U256::from(new),
                    },
                )],
            },
        )],
        ..StateDiff::default()
    };
    overlay.apply(step(5, 6));
    overlay.apply(step(6, 8));
    let slots = &overlay.diff().accounts[0].1.slots;
    let want = SlotDiff {
        prior: U256::from(5),
        new: U256::from(8),
    };
    assert_eq!(slots.as_slice(), [(one(), want)]);
    overlay.apply(step(8, 5));
    assert!(overlay.diff().is_empty());
}
