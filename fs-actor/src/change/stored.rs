//! Steps as bytes, for the journal.

use bailiwick::journal::UndoRecord;
use bailiwick::{CallError, Code, VirtualPath};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{State, Step, TransferMode};

/// A step without contents, which follow the list of all steps.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "step", deny_unknown_fields)]
enum Stored {
    Write {
        path: VirtualPath,
        bytes: usize,
        existing: State,
        mode: Option<u32>,
    },
    SetMode {
        path: VirtualPath,
        state: State,
        from: u32,
        to: u32,
    },
    MakeDirectory {
        path: VirtualPath,
        mode: Option<u32>,
    },
    Link {
        path: VirtualPath,
        bytes: usize,
    },
    Move {
        from: VirtualPath,
        to: VirtualPath,
        state: State,
        existing: State,
    },
    Remove {
        path: VirtualPath,
        state: State,
    },
}

/// What the journal keeps of a plan with this inverse.
pub(crate) fn undo_record(inverse: Option<&[Step]>) -> UndoRecord {
    UndoRecord {
        inverse: inverse.and_then(encode),
        undoes: Vec::new(),
    }
}

/// The steps as bytes; `None` if one of them cannot be stored.
pub(crate) fn encode(steps: &[Step]) -> Option<Vec<u8>> {
    let mut contents: Vec<&Bytes> = Vec::new();
    let stored = steps.iter().map(|step| {
        Some(match step.clone() {
            Step::Write {
                path,
                existing,
                mode,
                ..
            } => {
                let content = step.content()?;
                contents.push(content);
                Stored::Write {
                    path,
                    bytes: content.len(),
                    existing,
                    mode,
                }
            }
            Step::SetMode {
                path,
                state,
                from,
                to,
            } => Stored::SetMode {
                path,
                state,
                from,
                to,
            },
            Step::MakeDirectory { path, mode } => Stored::MakeDirectory { path, mode },
            Step::MakeLink { path, .. } => {
                let target = step.content()?;
                contents.push(target);
                Stored::Link {
                    path,
                    bytes: target.len(),
                }
            }
            Step::Transfer {
                mode: TransferMode::Move,
                from,
                to,
                state,
                existing,
            } => Stored::Move {
                from,
                to,
                state,
                existing,
            },
            Step::Transfer {
                mode: TransferMode::Copy,
                ..
            } => return None,
            Step::Remove { path, state } => Stored::Remove { path, state },
        })
    });
    let stored = stored.collect::<Option<Vec<Stored>>>()?;
    let json = serde_json::to_vec(&stored).ok()?;
    let mut bytes = u32::try_from(json.len()).ok()?.to_le_bytes().to_vec();
    bytes.extend(json);
    contents
        .into_iter()
        .for_each(|content| bytes.extend_from_slice(content));
    Some(bytes)
}

/// The steps that [`encode`] has made into bytes.
///
/// # Errors
/// `INTERNAL` if another program made the bytes.
pub(crate) fn decode(bytes: Vec<u8>) -> Result<Vec<Step>, CallError> {
    parse(bytes.into()).ok_or_else(|| {
        let message = "the journal has an entry that this version cannot undo";
        CallError::new(Code::Internal, message)
    })
}

fn parse(mut bytes: Bytes) -> Option<Vec<Step>> {
    let length = bytes.split_to_checked(4)?;
    let length = u32::from_le_bytes(length.as_ref().try_into().ok()?);
    let json = bytes.split_to_checked(usize::try_from(length).ok()?)?;
    let stored: Vec<Stored> = serde_json::from_slice(&json).ok()?;
    let steps = stored.into_iter().map(|stored| {
        Some(match stored {
            Stored::Write {
                path,
                bytes: length,
                existing,
                mode,
            } => Step::Write {
                path,
                content: bytes.split_to_checked(length)?,
                existing,
                mode,
            },
            Stored::SetMode {
                path,
                state,
                from,
                to,
            } => Step::SetMode {
                path,
                state,
                from,
                to,
            },
            Stored::MakeDirectory { path, mode } => Step::MakeDirectory { path, mode },
            Stored::Link {
                path,
                bytes: length,
            } => Step::MakeLink {
                path,
                target: bytes.split_to_checked(length)?,
            },
            Stored::Move {
                from,
                to,
                state,
                existing,
            } => Step::Transfer {
                mode: TransferMode::Move,
                from,
                to,
                state,
                existing,
            },
            Stored::Remove { path, state } => Step::Remove { path, state },
        })
    });
    steps.collect()
}

trait SplitChecked: Sized {
    /// The first `length` bytes, which are removed; `None` if there are fewer.
    fn split_to_checked(&mut self, length: usize) -> Option<Self>;
}

impl SplitChecked for Bytes {
    fn split_to_checked(&mut self, length: usize) -> Option<Self> {
        (length <= self.len()).then(|| self.split_to(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_steps_are_read_as_written() {
        let path = |text: &str| VirtualPath::parse(text, None).unwrap();
        let steps = vec![
            Step::Write {
                path: path("/r/a"),
                content: Bytes::from_static(b"\0\xff\n"),
                existing: State::of_file(b"b"),
                mode: Some(0o640),
            },
            Step::SetMode {
                path: path("/r/a"),
                state: State::of_file(b"b"),
                from: 0o644,
                to: 0o755,
            },
            Step::MakeLink {
                path: path("/r/l"),
                target: Bytes::from_static(b"../\xff"),
            },
            Step::MakeDirectory {
                path: path("/r/d"),
                mode: None,
            },
            Step::Write {
                path: path("/r/d/empty"),
                content: Bytes::new(),
                existing: State::Absent,
                mode: None,
            },
            Step::Transfer {
                mode: TransferMode::Move,
                from: path("/r/d"),
                to: path("/r/e"),
                state: State::empty_directory(),
                existing: State::Absent,
            },
            Step::Remove {
                path: path("/r/e"),
                state: State::empty_directory(),
            },
        ];
        let bytes = encode(&steps).unwrap();
        assert_eq!(decode(bytes.clone()).unwrap(), steps);
        for length in 0..bytes.len() {
            assert!(decode(bytes[..length].to_vec()).is_err(), "{length}");
        }
    }
}
