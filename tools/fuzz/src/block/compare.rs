//! Compares the results of two machines for a block, and shrinks the block while they differ.

use super::{
    BlockCase, Done, Plan, T8n, Verdict,
    ours::{self, Mode},
};
use niwaki_evm::Dispatch;
use niwaki_primitives::{AccountChanges, Address, BlockAccessList, Bytes, rlp::Decodable};
use niwaki_testkit::MemoryState;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
};

/// The difference if only one machine runs the block.
const WHOLE: &str = "the block";

/// What to compare our sequential execution with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Others<'a> {
    pub(crate) dispatch: Dispatch,
    /// go-ethereum, if available.
    pub(crate) peer: Option<&'a T8n>,
}

/// The difference, our sequential execution first; `None` if there is none.
pub(crate) fn difference(case: &BlockCase, others: Others<'_>) -> Option<String> {
    let (us, our_state) = ours::run(case, Mode::Sequential(others.dispatch));
    for (who, mode) in [("spec", Mode::Speculative), ("bal", Mode::WithBal)] {
        let (them, their_state) = ours::run(case, mode);
        if us != them {
            return Some(match (&us, &them) {
                (Verdict::Done(us), Verdict::Done(them)) => {
                    describe(who, us, them, || (our_state, their_state))
                }
                _ => unequal(who, WHOLE, &us, &them),
            });
        }
    }
    let peer = others.peer?;
    let them = peer.run(case);
    if us == them {
        return None;
    }
    let (us, mut them) = match (us, them) {
        (Verdict::Done(us), Verdict::Done(them)) => (us, them),
        // The error messages are each machine's own.
        (Verdict::Invalid(_), Verdict::Invalid(_)) => return None,
        (us, them) => return Some(unequal("geth", WHOLE, &us, &them)),
    };
    // In go-ethereum a rejected transaction may have left entries in the block access list.
    if !us.refused.is_empty() && us.refused == them.refused {
        let mut clean = case.clone();
        let mut index = 0..;
        clean
            .transactions
            .retain(|_| index.next().is_none_or(|at| !us.refused.contains(&at)));
        if let Verdict::Done(again) = peer.run(&clean) {
            them.block_access_list = again.block_access_list;
        }
    }
    (us != them).then(|| describe("geth", &us, &them, || (our_state, peer.post_state(case))))
}

fn unequal(who: &str, what: &str, us: &dyn Debug, them: &dyn Debug) -> String {
    format!("{what}:\n  niwaki {us:?}\n  {who:<6} {them:?}\n")
}

/// All differences, for a reader.
fn describe(
    who: &str,
    us: &Done,
    them: &Done,
    states: impl FnOnce() -> (MemoryState, MemoryState),
) -> String {
    let mut report = String::new();
    let mut compare = |what: &str, us: &dyn Debug, them: &dyn Debug| {
        if format!("{us:?}") != format!("{them:?}") {
            report += &unequal(who, what, us, them);
        }
    };
    compare("refused transactions", &us.refused, &them.refused);
    for (at, (ours, theirs)) in us.receipts.iter().zip(&them.receipts).enumerate() {
        compare(&format!("receipt {at}"), ours, theirs);
    }
    compare("receipts", &us.receipts.len(), &them.receipts.len());
    compare("blooms", &us.receipt_blooms, &them.receipt_blooms);
    compare("logs bloom", &us.logs_bloom, &them.logs_bloom);
    compare("gas used", &us.gas_used, &them.gas_used);
    compare("blob gas used", &us.blob_gas_used, &them.blob_gas_used);
    compare("requests", &us.requests, &them.requests);
    if us.state_root != them.state_root {
        let (ours, theirs) = states();
        compare("state root", &us.state_root, &them.state_root);
        for address in union(&ours.accounts, &theirs.accounts) {
            compare(
                &format!("account {address}"),
                &ours.accounts.get(&address),
                &theirs.accounts.get(&address),
            );
        }
    }
    if us.block_access_list != them.block_access_list {
        let (ours, theirs) = (
            accounts(us.block_access_list.as_ref()),
            accounts(them.block_access_list.as_ref()),
        );
        compare("accounts in the list", &ours.len(), &theirs.len());
        for address in union(&ours, &theirs) {
            compare(
                &format!("list, {address}"),
                &ours.get(&address),
                &theirs.get(&address),
            );
        }
        if ours == theirs {
            report += "block access list: the same accounts in other bytes\n";
        }
    }
    report
}

fn union<T>(a: &BTreeMap<Address, T>, b: &BTreeMap<Address, T>) -> BTreeSet<Address> {
    a.keys().chain(b.keys()).copied().collect()
}

fn accounts(list: Option<&Bytes>) -> BTreeMap<Address, AccountChanges> {
    let Some(list) = list else {
        return BTreeMap::new();
    };
    BlockAccessList::decode(&mut list.as_ref())
        .unwrap_or_default()
        .into_iter()
        .map(|account| (account.address, account))
        .collect()
}

/// Removes transactions, withdrawals and accounts while the results differ, and while a block that both machines run
/// does not become one that only one runs.
pub(crate) fn shrink(mut plan: Plan, mut what: String, others: Others<'_>) -> (Plan, String) {
    let mut keep_if_differs = |plan: &mut Plan, smaller: Plan| {
        let found = difference(&smaller.sign(), others);
        let found = found.filter(|found| found.starts_with(WHOLE) == what.starts_with(WHOLE));
        let differs = found.is_some();
        if let Some(found) = found {
            (*plan, what) = (smaller, found);
        }
        differs
    };
    let mut at = 0;
    while at < plan.drafts.len() {
        let mut smaller = plan.clone();
        smaller.drafts.remove(at);
        if !keep_if_differs(&mut plan, smaller) {
            at += 1;
        }
    }
    let mut smaller = plan.clone();
    smaller.withdrawals.clear();
    keep_if_differs(&mut plan, smaller);
    let addresses: Vec<Address> = plan.state.accounts.keys().copied().collect();
    for address in addresses {
        let mut smaller = plan.clone();
        smaller.state.accounts.remove(&address);
        keep_if_differs(&mut plan, smaller);
    }
    (plan, what)
}
