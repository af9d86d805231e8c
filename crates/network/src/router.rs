//! The router: which peer is asked for what, how much at a time, and what follows if it does not answer.
//!
//! | file | what it is |
//! |---|---|
//! | `rates` | how much a peer delivers in a second, and how long it takes |
//! | `ask` | jobs in, requests out; the answers of peers in, the end of jobs out |
//! | `job` | a job as its caller holds it |
//! | `task` | the router as it runs |

mod ask;
mod job;
mod rates;
mod task;

pub use ask::{
    Abilities, Ask, AskAction, GivenUp, JobError, JobId, Need, OpenRequest, Outcome, Router, Try,
    TryEnd,
};
pub use job::{Delivery, DeliveryId, Job, JobEvent};
pub use task::RouterHandle;
pub(crate) use task::start;
