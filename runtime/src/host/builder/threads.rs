//! A number of threads in, the sizes of the pools out.

use crate::worker::PoolSize;

pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

pub(super) fn io(threads: usize) -> PoolSize {
    PoolSize {
        threads,
        hard_cap: threads * 2,
        queue: 4096,
        per_root: (threads * 3 / 4).max(1),
    }
}

pub(super) fn cpu() -> PoolSize {
    PoolSize {
        threads: cores(),
        hard_cap: cores(),
        queue: 4096,
        per_root: cores(),
    }
}
