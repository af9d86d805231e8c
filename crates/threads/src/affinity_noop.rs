//! CPU affinity of worker threads on systems where it can't be set: nothing is done.

/// The threads of a pool.
#[derive(Debug, Default)]
pub(crate) struct WorkerAffinity;

/// The CPUs that the caller may use.
#[derive(Clone, Copy, Default)]
pub(crate) struct CallerCpus;

impl WorkerAffinity {
    pub(crate) fn add_this_thread(&self) {}

    pub(crate) fn keep_off_this_cpu(&self) -> CallerCpus {
        CallerCpus
    }

    pub(crate) fn begin(&self, _: CallerCpus) {}
}
