//! What all frames of a run share: the world, the block, the arena and some caches.

use crate::{
    arena::Arena,
    division::DivisorCache,
    env::{BlockEnv, TxEnv},
    modulus::ModulusCache,
    world::World,
};
use niwaki_primitives::{Address, Fault, U256};

/// What all frames of a run share.
#[derive(Debug)]
pub(crate) struct SharedState<'v> {
    pub(crate) world: World<'v>,
    pub(crate) block: BlockEnv,
    pub(crate) tx: TxEnv,
    pub(crate) arena: Arena,
    /// The inverse of the last divisor, and of the last modulus of ADDMOD or MULMOD.
    pub(crate) divisor: DivisorCache,
    pub(crate) modulus: ModulusCache,
    /// Output of the last call (RETURNDATACOPY).
    pub(crate) return_data: Vec<u8>,
    /// Beneficiary of the last SELFDESTRUCT, and the wei that it got.
    pub(crate) last_selfdestruct: (Address, U256),
    /// How many logs of the transaction the tracer has been given.
    pub(crate) traced_logs: usize,
    /// Why the state could not be read, after [`Exit::Fault`](crate::Exit::Fault).
    pub(crate) fault: Option<Fault>,
}
