//! Stack of open directories for a tree walk, with a bounded number of descriptors.

use std::sync::Arc;

use super::OpenDir;

use crate::sys::{Errno, SeekFrom, fstat, seek};

/// Maximum number of open directories beneath the top. Others are reopened by their names when they become current,
/// without following links, and only if they are the same directory.
const MAX_OPEN: usize = 8;

/// The directories from the top to the current one.
#[derive(Debug)]
pub(crate) struct DirStack {
    top: Arc<OpenDir>,
    /// Names from the top down, joined by `/`.
    names: String,
    levels: Vec<Level>,
}

#[derive(Debug)]
struct Level {
    /// Length of the names above it.
    above: usize,
    dir: DirState,
}

#[derive(Debug)]
enum DirState {
    Open(Arc<OpenDir>),
    Closed {
        /// Device and inode.
        identity: (u64, u64),
        /// Position in the directory stream.
        offset: u64,
    },
}

impl DirStack {
    pub(crate) fn new(top: impl Into<Arc<OpenDir>>) -> Self {
        Self {
            top: top.into(),
            names: String::new(),
            levels: Vec::new(),
        }
    }

    /// The current directory.
    ///
    /// # Errors
    /// `ESTALE` if it was replaced, and errors of opening it.
    pub(crate) fn current(&mut self) -> Result<&Arc<OpenDir>, Errno> {
        let Some(level) = self.levels.last_mut() else {
            return Ok(&self.top);
        };
        if let DirState::Closed {
            identity: expected,
            offset,
        } = level.dir
        {
            let dir = self.top.enter(&self.names)?;
            if identity(&dir)? != expected {
                return Err(Errno::STALE);
            }
            if offset > 0 {
                seek(dir.as_fd(), SeekFrom::Start(offset))?;
            }
            level.dir = DirState::Open(Arc::new(dir));
        }
        match &level.dir {
            DirState::Open(dir) => Ok(dir),
            DirState::Closed { .. } => Err(Errno::STALE),
        }
    }

    /// Enters the directory `name`.
    pub(crate) fn enter(&mut self, name: &str) -> Result<(), Errno> {
        let dir = self.current()?.enter(name)?;
        let surplus = self.levels.len().checked_sub(MAX_OPEN);
        if let Some(level) = surplus.and_then(|index| self.levels.get_mut(index))
            && let DirState::Open(dir) = &level.dir
        {
            level.dir = DirState::Closed {
                identity: identity(dir)?,
                offset: seek(dir.as_fd(), SeekFrom::Current(0)).unwrap_or(0),
            };
        }
        let level = Level {
            above: self.names.len(),
            dir: DirState::Open(Arc::new(dir)),
        };
        if !self.names.is_empty() {
            self.names.push('/');
        }
        self.names.push_str(name);
        self.levels.push(level);
        Ok(())
    }

    /// Leaves the current directory; does nothing at the top.
    pub(crate) fn pop(&mut self) {
        if let Some(level) = self.levels.pop() {
            self.names.truncate(level.above);
        }
    }
}

fn identity(dir: &OpenDir) -> Result<(u64, u64), Errno> {
    let stat = fstat(dir.as_fd())?;
    Ok((stat.st_dev, stat.st_ino))
}
