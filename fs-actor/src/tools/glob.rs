//! Compiles the globs of `find` and `grep`.

use bailiwick::CallError;
use bailiwick::policy::PathGlob;

/// Compiles `glob`, the argument `field`. A glob without `/` matches names at any depth.
pub(super) fn compile(field: &str, glob: &str) -> Result<PathGlob, CallError> {
    let glob = PathGlob::parse(glob.trim_start_matches("./"));
    glob.map_err(|error| CallError::invalid_argument(field, error))
}

#[cfg(test)]
mod tests {
    use bailiwick::Code;

    use super::*;

    #[test]
    fn glob_without_separator_matches_names_at_any_depth() {
        let matches = |glob: &str, path: &str| compile("/glob", glob).unwrap().is_match(path);
        assert!(matches("*.rs", "a/b/c.rs") && matches("./*.rs", "c.rs"));
        assert!(matches("src/*.rs", "src/c.rs") && !matches("src/*.rs", "src/a/c.rs"));
        assert!(matches("src/**/*.rs", "src/a/b/c.rs"));
    }

    #[test]
    fn invalid_and_too_large_globs_are_refused() {
        for glob in ["", "[", "!x", &"a".repeat(513), "{a,b}{a,b}{a,b}{a,b}{a,b}"] {
            let refused = compile("/glob", glob).unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArguments);
        }
        assert!(compile("/glob", "{a,b}.{rs,toml}").is_ok());
    }
}
