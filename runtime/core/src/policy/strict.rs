//! Finds a path that one list of allow globs covers and another does not. Used for `strict`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::util::primitives::StateID;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, nfa::thompson};

use super::authority::Authority;
use super::error::PolicyError;
use super::globs::{Reading, compile, variants};
use super::matcher::by_character;
use super::roots::Subtree;
use crate::path::VirtualPath;

const MAX_DFA: usize = 1 << 20;
/// Maximum number of combined states to search.
const MAX_SEARCH: usize = 200_000;
/// Pattern of a path without its leading `/`.
const PATH: &str = r"^(?u:[^/\x00-\x1f])+(/(?u:[^/\x00-\x1f])+)*$";

type Dfa = dense::DFA<Vec<u32>>;

/// Rejects `allow` if it names paths that a layer of the issuer does not list.
pub(super) fn admit(
    mount: &VirtualPath,
    allow: &[String],
    issuer: &Authority,
    at: &str,
) -> Result<(), PolicyError> {
    let too_hard =
        |_| PolicyError::invalid(at, "is too intricate to compare with the issuer's globs");
    let wanted = automaton(&absolute(mount, Some(allow)).map_err(too_hard)?).map_err(too_hard)?;
    let base: Vec<&Subtree> = issuer.base().listed().collect();
    let closed = issuer
        .layers()
        .iter()
        .map(|held| held.layer.roots())
        .filter(|roots| roots.is_closed());
    for listed in std::iter::once(base).chain(closed.map(|roots| roots.listed().collect())) {
        let held = automaton(&language(&listed).map_err(too_hard)?).map_err(too_hard)?;
        if let Some(path) = find_uncovered(&wanted, &held).map_err(too_hard)? {
            return Err(PolicyError::expansion(
                at,
                "names paths that the issuer does not list",
                allow.to_vec(),
                listed
                    .iter()
                    .flat_map(|entry| entry.allow_texts().unwrap_or_default())
                    .cloned()
                    .collect::<Vec<_>>(),
            )
            .witness(path));
        }
    }
    Ok(())
}

/// Why two languages could not be compared.
struct TooHard;

/// The globs of all entries, relative to the top of the namespace.
fn language(entries: &[&Subtree]) -> Result<Vec<String>, TooHard> {
    let mut all = Vec::new();
    for entry in entries {
        all.extend(absolute(&entry.mount.path, entry.allow_texts())?);
    }
    Ok(all)
}

fn absolute(mount: &VirtualPath, allow: Option<&[String]>) -> Result<Vec<String>, TooHard> {
    let stem = globset::escape(mount.as_str().trim_start_matches('/'));
    let beneath = |glob: &str| match (stem.as_str(), glob) {
        ("", glob) => glob.to_owned(),
        (stem, "") => stem.to_owned(),
        (stem, glob) => format!("{stem}/{glob}"),
    };
    let Some(allow) = allow else {
        return Ok(vec![beneath(""), beneath("**")]);
    };
    let mut all = Vec::new();
    for text in allow {
        let globs = variants(Reading::Allow, text).map_err(|_| TooHard)?;
        if globs.iter().any(|glob| glob == "**") {
            all.push(beneath(""));
        }
        all.extend(globs.iter().map(|glob| beneath(glob)));
    }
    Ok(all)
}

fn automaton(globs: &[String]) -> Result<Dfa, TooHard> {
    let compiled = globs.iter().map(|glob| compile(glob));
    let regexes = compiled.map(|glob| Ok(by_character(glob.map_err(|_| TooHard)?.regex())));
    build(&regexes.collect::<Result<Vec<_>, _>>()?)
}

fn build<P: AsRef<str>>(patterns: &[P]) -> Result<Dfa, TooHard> {
    dense::Builder::new()
        .configure(
            dense::Config::new()
                .start_kind(StartKind::Anchored)
                .dfa_size_limit(Some(MAX_DFA))
                .determinize_size_limit(Some(4 * MAX_DFA)),
        )
        .syntax(syntax::Config::new().unicode(false).utf8(false))
        .thompson(
            thompson::Config::new()
                .utf8(false)
                .nfa_size_limit(Some(MAX_DFA)),
        )
        .build_many(patterns)
        .map_err(|_| TooHard)
}

fn start(dfa: &Dfa) -> Result<StateID, TooHard> {
    dfa.start_state_forward(&Input::new("").anchored(Anchored::Yes))
        .map_err(|_| TooHard)
}

/// The shortest path that `wanted` covers and `held` does not.
fn find_uncovered(wanted: &Dfa, held: &Dfa) -> Result<Option<String>, TooHard> {
    let path = build(&[PATH])?;
    let all = [&path, wanted, held];
    let letters = representatives(&all);
    let first = [start(&path)?, start(wanted)?, start(held)?];
    let mut seen = BTreeMap::from([(first, None)]);
    let mut queue = VecDeque::from([first]);
    while let Some(states) = queue.pop_front() {
        let [of_path, of_wanted, of_held] = states;
        let ends = |dfa: &Dfa, state| dfa.is_match_state(dfa.next_eoi_state(state));
        if ends(&path, of_path) && ends(wanted, of_wanted) && !ends(held, of_held) {
            return Ok(Some(trace(&seen, states)));
        }
        for &letter in &letters {
            let next = [
                path.next_state(of_path, letter),
                wanted.next_state(of_wanted, letter),
                held.next_state(of_held, letter),
            ];
            let [next_path, next_wanted, _] = next;
            let hopeless = path.is_dead_state(next_path) || wanted.is_dead_state(next_wanted);
            if !hopeless && !seen.contains_key(&next) {
                seen.insert(next, Some((states, letter)));
                queue.push_back(next);
            }
        }
        if seen.len() > MAX_SEARCH {
            return Err(TooHard);
        }
    }
    Ok(None)
}

/// One byte of each equivalence class of the automata, readable bytes first.
fn representatives(all: &[&Dfa; 3]) -> Vec<u8> {
    let readable = |byte: &u8| !byte.is_ascii_lowercase();
    let mut bytes: Vec<u8> = (0..=u8::MAX).collect();
    bytes.sort_by_key(|byte| (readable(byte), !byte.is_ascii_graphic()));
    let mut classes = BTreeSet::new();
    bytes.retain(|byte| classes.insert(all.map(|dfa| dfa.byte_classes().get(*byte))));
    bytes
}

type States = [StateID; 3];

fn trace(seen: &BTreeMap<States, Option<(States, u8)>>, end: States) -> String {
    let mut bytes = Vec::new();
    let mut at = end;
    while let Some(Some((before, byte))) = seen.get(&at) {
        bytes.push(*byte);
        at = *before;
    }
    bytes.push(b'/');
    bytes.reverse();
    String::from_utf8_lossy(&bytes).into_owned()
}
