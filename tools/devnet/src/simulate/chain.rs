//! The chain of a simulated node: headers without transactions, and the validators after each.

use niwaki_bft::machine::Head;
use niwaki_primitives::{Address, B256, Block, Header, U256};
use niwaki_rules::{
    BftExtra, BftProtocol, BftRules, ValidatorSet, Vote, VoteTally, bft_block_hash,
    check_bft_validators,
};
use std::sync::Arc;

/// The gas of a block that breaks a rule.
pub(super) const INVALID_GAS: u64 = 1;

#[derive(Clone, Debug)]
pub(super) struct SimChain {
    rules: Arc<BftRules>,
    headers: Vec<Arc<Header>>,
    tally: VoteTally,
}

impl SimChain {
    pub(super) fn new(rules: Arc<BftRules>, validators: &[Address]) -> Self {
        let extra = BftExtra {
            validators: validators.to_vec(),
            ..BftExtra::default()
        };
        let genesis = Header {
            difficulty: U256::ONE,
            extra_data: extra.encode(rules.protocol),
            ..Header::default()
        };
        Self {
            rules,
            headers: vec![Arc::new(genesis)],
            tally: VoteTally::new(ValidatorSet::new(validators.iter().copied())),
        }
    }

    pub(super) fn protocol(&self) -> BftProtocol {
        self.rules.protocol
    }

    pub(super) fn height(&self) -> u64 {
        self.headers.len() as u64 - 1
    }

    pub(super) fn validators(&self) -> &ValidatorSet {
        self.tally.validators()
    }

    /// The validators of a block of the chain or, above it, of the next one.
    pub(super) fn validators_at(&self, number: u64) -> ValidatorSet {
        let header = self.header(number);
        let extra = header.map(|header| BftExtra::decode(self.protocol(), &header.extra_data));
        match extra {
            Some(Ok(extra)) => ValidatorSet::new(extra.validators),
            _ => self.validators().clone(),
        }
    }

    pub(super) fn header(&self, number: u64) -> Option<&Arc<Header>> {
        self.headers.get(usize::try_from(number).ok()?)
    }

    pub(super) fn head(&self) -> Head {
        let header = &self.headers[self.headers.len() - 1];
        Head {
            number: header.number,
            hash: self.hash(header),
            timestamp: header.timestamp,
            coinbase: header.beneficiary,
            validators: self.validators().clone(),
            rules: Arc::clone(&self.rules),
        }
    }

    pub(super) fn hash(&self, header: &Header) -> B256 {
        bft_block_hash(self.protocol(), header).unwrap_or_default()
    }

    /// A block on the head. `vanity` makes it differ from others.
    pub(super) fn build(
        &self,
        coinbase: Address,
        timestamp: u64,
        vote: Option<Vote>,
        vanity: u64,
    ) -> Block {
        let head = self.head();
        let extra = BftExtra {
            vanity: B256::from(U256::from(vanity)).0.into(),
            validators: self.validators().as_slice().to_vec(),
            vote: vote.filter(|_| !self.rules.is_epoch(head.number + 1)),
            ..BftExtra::default()
        };
        let header = Header {
            number: head.number + 1,
            parent_hash: head.hash,
            timestamp,
            beneficiary: coinbase,
            difficulty: U256::ONE,
            extra_data: extra.encode(self.protocol()),
            ..Header::default()
        };
        Block {
            header,
            body: Default::default(),
        }
    }

    /// Whether a block without seals may follow the head, as an execution would say.
    pub(super) fn is_valid(&self, header: &Header) -> bool {
        let head = self.head();
        let extra = BftExtra::decode(self.protocol(), &header.extra_data);
        header.number == head.number + 1
            && header.parent_hash == head.hash
            && header.gas_used != INVALID_GAS
            && header.timestamp >= head.timestamp + self.rules.block_period_ms() / 1_000
            && self.validators().contains(&header.beneficiary)
            && extra.is_ok_and(|extra| extra.validators == self.validators().as_slice())
    }

    /// Appends a block with its seals.
    ///
    /// # Errors
    /// Why it can't follow the head.
    pub(super) fn append(&mut self, header: Arc<Header>) -> Result<(), String> {
        if !self.is_valid(&header) {
            return Err(format!("block {} is not valid", header.number));
        }
        check_bft_validators(&self.rules, &header, self.validators())
            .map_err(|error| format!("block {}: {error}", header.number))?;
        if self.rules.is_epoch(header.number) {
            self.tally.end_votes();
        } else if let Ok(extra) = BftExtra::decode(self.protocol(), &header.extra_data)
            && let Some(vote) = extra.vote
        {
            self.tally.vote(header.beneficiary, vote);
        }
        self.headers.push(header);
        Ok(())
    }
}
