//! A glob as a model writes it in, a matcher for paths beneath a directory out.

use bailiwick::{CallError, Code};
use globset::{GlobBuilder, GlobMatcher};

/// The longest glob, in bytes, and the most alternatives in it: compiling takes a millisecond at worst.
const MAX_GLOB: usize = 512;
const MAX_BRACES: usize = 4;

/// Compiles `glob`; one without `/` is for names at any depth.
pub(super) fn compile(glob: &str) -> Result<GlobMatcher, CallError> {
    let refuse = |why: String| CallError::new(Code::InvalidArguments, why);
    let braces = glob.bytes().filter(|byte| *byte == b'{').count();
    if glob.is_empty() || glob.len() > MAX_GLOB || braces > MAX_BRACES {
        let why = format!("a glob has 1 to {MAX_GLOB} bytes and at most {MAX_BRACES} `{{`");
        return Err(refuse(why));
    }
    let plain = glob.trim_start_matches("./");
    let anywhere = if plain.contains('/') {
        plain.to_owned()
    } else {
        format!("**/{plain}")
    };
    let built = GlobBuilder::new(&anywhere).literal_separator(true).build();
    built
        .map(|glob| glob.compile_matcher())
        .map_err(|error| refuse(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_without_a_separator_matches_names_at_any_depth() {
        let matches = |glob: &str, path: &str| compile(glob).unwrap().is_match(path);
        assert!(matches("*.rs", "a/b/c.rs") && matches("*.rs", "c.rs"));
        assert!(matches("src/*.rs", "src/c.rs") && !matches("src/*.rs", "src/a/c.rs"));
        assert!(matches("src/**/*.rs", "src/a/b/c.rs"));
    }

    #[test]
    fn a_glob_that_is_none_or_too_much_is_refused() {
        for glob in ["", "[", &"a".repeat(513), "{a,b}{a,b}{a,b}{a,b}{a,b}"] {
            assert_eq!(compile(glob).unwrap_err().code(), Code::InvalidArguments);
        }
        assert!(compile("{a,b}.{rs,toml}").is_ok());
    }
}
