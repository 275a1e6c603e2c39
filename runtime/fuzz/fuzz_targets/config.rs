//! Configurations: what is read is written and read back unchanged.
#![no_main]

use bailiwick::Config;
use bailiwick::json::read_json;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|input: &[u8]| {
    let Ok(value) = read_json::<Value>(input) else {
        return;
    };
    let Ok(config) = Config::parse(&value) else {
        return;
    };
    let written = config.to_json();
    let read = Config::parse(&written).map(|config| config.to_json());
    assert_eq!(read.ok().as_ref(), Some(&written));
});
