//! Delegation tree of workers, and the revocation of its subtrees.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::FixedState;

use super::SpawnError;
use crate::capability::{CloseReason, Gate};
use crate::id::WorkerId;

#[derive(Debug)]
struct Node {
    parent: Option<WorkerId>,
    children: HashSet<WorkerId, FixedState>,
    gate: Arc<Gate>,
    /// Its actor and all its effects have ended.
    ended: bool,
}

/// Live workers, and revoked ones that have not ended yet.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    nodes: HashMap<WorkerId, Node, FixedState>,
    closed: bool,
}

/// A worker whose gate is closed.
#[derive(Debug)]
pub(super) struct Revoked {
    pub(super) id: WorkerId,
    pub(super) gate: Arc<Gate>,
    /// The gate was open before.
    pub(super) newly: bool,
}

impl Tree {
    /// Adds `id`, unless its parent was revoked or the runtime is shut down.
    pub(super) fn insert(
        &mut self,
        id: WorkerId,
        parent: Option<WorkerId>,
        gate: Arc<Gate>,
    ) -> Result<(), SpawnError> {
        if self.closed {
            return Err(SpawnError::Closed);
        }
        if let Some(parent) = parent {
            let parent = self.nodes.get_mut(&parent);
            let parent = parent.filter(|node| !node.gate.is_closed());
            parent.ok_or(SpawnError::Orphan)?.children.insert(id);
        }
        let node = Node {
            parent,
            children: HashSet::default(),
            gate,
            ended: false,
        };
        self.nodes.insert(id, node);
        Ok(())
    }

    /// Closes the gates of `id` and its descendants. Returns all of them that have not ended, including those that were
    /// revoked before; parents come before their children.
    pub(super) fn revoke(&mut self, id: WorkerId, why: CloseReason) -> Vec<Revoked> {
        self.revoke_beneath(vec![id], why)
    }

    /// Closes all gates and accepts no workers from now on.
    pub(super) fn close(&mut self) -> Vec<Revoked> {
        self.closed = true;
        let tops = self.nodes.iter().filter(|(_, node)| node.parent.is_none());
        let tops = tops.map(|(id, _)| *id).collect();
        self.revoke_beneath(tops, CloseReason::RuntimeEnded)
    }

    /// `id` and its descendants.
    pub(super) fn subtree(&self, id: WorkerId) -> Vec<WorkerId> {
        let mut ids = vec![id];
        let mut next = 0;
        while let Some(node) = ids.get(next).map(|id| self.nodes.get(id)) {
            next += 1;
            ids.extend(node.into_iter().flat_map(|node| &node.children));
        }
        ids
    }

    fn revoke_beneath(&self, mut ids: Vec<WorkerId>, why: CloseReason) -> Vec<Revoked> {
        let mut revoked = Vec::new();
        let mut next = 0;
        while let Some(id) = ids.get(next).copied() {
            next += 1;
            let Some(node) = self.nodes.get(&id) else {
                continue;
            };
            revoked.push(Revoked {
                id,
                gate: Arc::clone(&node.gate),
                newly: node.gate.close(why),
            });
            ids.extend(&node.children);
        }
        revoked
    }

    /// Removes a revoked worker that has ended, once all its descendants have ended.
    pub(super) fn ended(&mut self, id: WorkerId) {
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        node.ended = true;
        let mut next = Some(id);
        while let Some(id) = next {
            let done = |node: &&Node| node.ended && node.children.is_empty();
            let Some(parent) = self.nodes.get(&id).filter(done).map(|node| node.parent) else {
                return;
            };
            self.nodes.remove(&id);
            if let Some(parent) = parent.and_then(|parent| self.nodes.get_mut(&parent)) {
                parent.children.remove(&id);
            }
            next = parent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAMILY: [(u64, Option<u64>); 5] = [
        (1, None),
        (2, Some(1)),
        (3, Some(2)),
        (4, Some(1)),
        (5, None),
    ];

    fn insert(tree: &mut Tree, id: u64, parent: Option<u64>) -> Result<(), SpawnError> {
        tree.insert(WorkerId(id), parent.map(WorkerId), Arc::default())
    }

    fn family() -> Tree {
        let mut tree = Tree::default();
        for (id, parent) in FAMILY {
            insert(&mut tree, id, parent).unwrap();
        }
        tree
    }

    fn revoke(tree: &mut Tree, id: u64) -> Vec<(u64, bool)> {
        let revoked = tree.revoke(WorkerId(id), CloseReason::WorkerRevoked);
        assert!(revoked.iter().all(|worker| worker.gate.is_closed()));
        let mut revoked: Vec<_> = revoked.iter().map(|it| (it.id.0, it.newly)).collect();
        revoked.sort_unstable();
        revoked
    }

    #[test]
    fn revoking_a_worker_revokes_only_its_subtree() {
        let mut tree = family();
        let parents_first: Vec<_> = tree
            .revoke(WorkerId(2), CloseReason::WorkerRevoked)
            .iter()
            .map(|it| it.id.0)
            .collect();
        assert_eq!(parents_first, [2, 3]);
        assert!(!tree.nodes[&WorkerId(1)].gate.is_closed());
        assert!(!tree.nodes[&WorkerId(5)].gate.is_closed());
    }

    #[test]
    fn second_revocation_returns_workers_that_have_not_ended() {
        let mut tree = family();
        assert_eq!(revoke(&mut tree, 2), [(2, true), (3, true)]);
        assert_eq!(revoke(&mut tree, 2), [(2, false), (3, false)]);
        assert_eq!(
            revoke(&mut tree, 1),
            [(1, true), (2, false), (3, false), (4, true)]
        );
        tree.ended(WorkerId(2));
        assert_eq!(revoke(&mut tree, 2), [(2, false), (3, false)]);
        tree.ended(WorkerId(3));
        assert_eq!(revoke(&mut tree, 2), []);
        assert_eq!(revoke(&mut tree, 1), [(1, false), (4, false)]);
        for id in [4, 1] {
            tree.ended(WorkerId(id));
        }
        assert_eq!(tree.nodes.len(), 1);
    }

    #[test]
    fn revoked_worker_gets_no_new_descendants() {
        let mut tree = family();
        tree.revoke(WorkerId(2), CloseReason::WorkerRevoked);
        let orphan = insert(&mut tree, 6, Some(3));
        assert!(matches!(orphan, Err(SpawnError::Orphan)));
        insert(&mut tree, 6, Some(4)).unwrap();
        for id in [3, 2] {
            tree.ended(WorkerId(id));
        }
        let orphan = insert(&mut tree, 7, Some(3));
        assert!(matches!(orphan, Err(SpawnError::Orphan)));
    }

    #[test]
    fn closed_tree_accepts_no_workers() {
        let mut tree = family();
        insert(&mut tree, 6, None).unwrap();
        assert_eq!(tree.close().len(), 6);
        for parent in [None, Some(1)] {
            let closed = insert(&mut tree, 7, parent);
            assert!(matches!(closed, Err(SpawnError::Closed)));
        }
    }
}
