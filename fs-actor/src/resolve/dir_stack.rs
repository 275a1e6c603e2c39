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
    /// Device and inode.
    identity: (u64, u64),
    /// Position in the directory stream.
    offset: u64,
    dir: Option<Arc<OpenDir>>,
}

impl DirStack {
    pub(crate) fn new(top: OpenDir) -> Self {
        Self {
            top: Arc::new(top),
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
        if level.dir.is_none() {
            let dir = self.top.enter(&self.names)?;
            if identity(&dir)? != level.identity {
                return Err(Errno::STALE);
            }
            if level.offset > 0 {
                seek(dir.as_fd(), SeekFrom::Start(level.offset))?;
            }
            level.dir = Some(Arc::new(dir));
        }
        level.dir.as_ref().ok_or(Errno::STALE)
    }

    /// Enters the directory `name`.
    pub(crate) fn enter(&mut self, name: &str) -> Result<(), Errno> {
        let dir = self.current()?.enter(name)?;
        let level = Level {
            above: self.names.len(),
            identity: identity(&dir)?,
            offset: 0,
            dir: Some(Arc::new(dir)),
        };
        if !self.names.is_empty() {
            self.names.push('/');
        }
        self.names.push_str(name);
        self.levels.push(level);
        let surplus = self.levels.len().checked_sub(MAX_OPEN + 1);
        if let Some(level) = surplus.and_then(|index| self.levels.get_mut(index))
            && let Some(dir) = level.dir.take()
        {
            level.offset = seek(dir.as_fd(), SeekFrom::Current(0)).unwrap_or(0);
        }
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
