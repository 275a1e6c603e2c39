//! Reads the configuration file.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde_json::Value;

use super::CliError;

/// The maximum size of a configuration file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

pub(super) fn read(path: &Path) -> Result<Value, CliError> {
    let failed = |source| CliError::File {
        path: path.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(CliError::TooLarge {
            path: path.to_owned(),
            max: MAX_BYTES,
        });
    }
    bailiwick::json::read_json(&bytes).map_err(|source| CliError::Json {
        path: path.to_owned(),
        source,
    })
}
