//! Scopes and patterns: what is parsed is written as it was read, and covering is transitive.
#![no_main]

use bailiwick::Scope;
use bailiwick::scope::{Coverage, ScopePattern};
use bailiwick_fuzz::parts_of;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some([wide, narrow, scope]) = parts_of(input) else {
        return;
    };
    let scope = scope.parse::<Scope>().ok();
    if let Some(scope) = &scope {
        assert_eq!(scope.to_string().parse::<Scope>().as_ref(), Ok(scope));
        assert!(ScopePattern::of(scope).covers(scope));
        assert!(Coverage::of(scope).includes(&Coverage::of(scope)));
    }
    let (Ok(wide), Ok(narrow)) = (wide.parse::<ScopePattern>(), narrow.parse::<ScopePattern>())
    else {
        return;
    };
    for pattern in [&wide, &narrow] {
        assert_eq!(
            pattern.to_string().parse::<ScopePattern>().as_ref(),
            Ok(pattern)
        );
        assert!(pattern.covers_pattern(pattern));
    }
    let Some(scope) = &scope else {
        return;
    };
    if wide.covers_pattern(&narrow) && narrow.covers(scope) {
        assert!(
            wide.covers(scope),
            "{wide} covers {narrow}, but not {scope}"
        );
    }
    let (wide, narrow) = (Coverage::from(wide), Coverage::from(narrow));
    for coverage in [&wide, &narrow] {
        let json = serde_json::to_value(coverage).expect("a coverage can be written");
        let read: Coverage = serde_json::from_value(json).expect("what was written can be read");
        assert_eq!(&read, coverage);
        // A grant covers no need that its pattern does not cover.
        assert!(!coverage.covers(scope) || coverage.pattern().covers(scope));
    }
    if wide.includes(&narrow) && narrow.covers(scope) {
        assert!(
            wide.pattern().covers(scope),
            "{wide:?} includes {narrow:?}, but not {scope}"
        );
    }
});
