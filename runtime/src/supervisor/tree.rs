//! Who delegated to whom in, the subtree that a revocation takes with it out.

use std::collections::{HashMap, HashSet};

use foldhash::fast::FixedState;

use crate::id::WorkerId;

#[derive(Debug, Default)]
struct Node {
    parent: Option<WorkerId>,
    children: HashSet<WorkerId, FixedState>,
}

/// The delegation tree of the workers that live.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: HashMap<WorkerId, Node, FixedState>,
    closed: bool,
}

/// Why a worker has no place in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// The worker that was to delegate is gone.
    Orphan,
    /// The runtime is shut down.
    Closed,
}

impl Tree {
    /// Adds `id`, unless its parent or the runtime is gone: what is revoked starts nothing new.
    pub(super) fn insert(&mut self, id: WorkerId, parent: Option<WorkerId>) -> Result<(), NoPlace> {
        if self.closed {
            return Err(NoPlace::Closed);
        }
        if let Some(parent) = parent {
            self.nodes
                .get_mut(&parent)
                .ok_or(NoPlace::Orphan)?
                .children
                .insert(id);
        }
        self.nodes.insert(
            id,
            Node {
                parent,
                children: HashSet::default(),
            },
        );
        Ok(())
    }

    /// Removes `id` and everything beneath it; parents come before their children.
    pub(super) fn remove_subtree(&mut self, id: WorkerId) -> Vec<WorkerId> {
        let Some(node) = self.nodes.get(&id) else {
            return Vec::new();
        };
        if let Some(parent) = node.parent.and_then(|parent| self.nodes.get_mut(&parent)) {
            parent.children.remove(&id);
        }
        let mut removed = vec![id];
        let mut next = 0;
        while let Some(id) = removed.get(next).copied() {
            removed.extend(
                self.nodes
                    .remove(&id)
                    .into_iter()
                    .flat_map(|node| node.children),
            );
            next += 1;
        }
        removed
    }

    /// Takes no worker from now on.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// The workers that no worker delegated to.
    pub(super) fn tops(&self) -> Vec<WorkerId> {
        let tops = self.nodes.iter().filter(|(_, node)| node.parent.is_none());
        tops.map(|(id, _)| *id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family() -> Tree {
        let mut tree = Tree::default();
        for (id, parent) in [
            (1, None),
            (2, Some(1)),
            (3, Some(2)),
            (4, Some(1)),
            (5, None),
        ] {
            tree.insert(WorkerId(id), parent.map(WorkerId)).unwrap();
        }
        tree
    }

    #[test]
    fn a_subtree_goes_with_its_top_and_leaves_the_rest() {
        let mut tree = family();
        assert_eq!(tree.remove_subtree(WorkerId(2)), [WorkerId(2), WorkerId(3)]);
        let mut rest = tree.remove_subtree(WorkerId(1));
        rest.sort();
        assert_eq!(rest, [WorkerId(1), WorkerId(4)]);
        assert_eq!(tree.tops(), [WorkerId(5)]);
    }

    #[test]
    fn nothing_is_added_beneath_what_is_gone() {
        let mut tree = family();
        tree.remove_subtree(WorkerId(2));
        assert_eq!(
            tree.insert(WorkerId(6), Some(WorkerId(3))),
            Err(NoPlace::Orphan)
        );
        assert_eq!(tree.insert(WorkerId(6), Some(WorkerId(4))), Ok(()));
        assert_eq!(tree.remove_subtree(WorkerId(2)), []);
    }

    #[test]
    fn nothing_is_added_once_it_is_closed() {
        let mut tree = family();
        assert_eq!(tree.insert(WorkerId(6), None), Ok(()));
        tree.close();
        for parent in [None, Some(WorkerId(1))] {
            assert_eq!(tree.insert(WorkerId(7), parent), Err(NoPlace::Closed));
        }
        assert_eq!(tree.tops().len(), 3);
    }
}
