//! Folds names, so that different spellings of one file name compare equal.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization;

use crate::text::is_ignorable;

/// Stands for a name that has only characters that file systems ignore, so that no folded name is empty.
const IGNORED_NAME: char = '\u{200b}';

/// Folds the names of `text`: NFC, case folded, without characters that file systems ignore. Slashes are not changed.
///
/// Two spellings that a case-insensitive or normalizing file system treats as the same name fold to the same text.
/// Letters are converted to lower case, to upper case and to lower case again. The upper case of `ſ`, `ı`, `ß` and ligatures
/// consists of plain letters; that of `ẞ` is `ẞ`, and its lower case `ß`.
#[doc(hidden)]
#[must_use]
pub fn fold(text: &str) -> Cow<'_, str> {
    if text
        .bytes()
        .all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase())
    {
        return Cow::Borrowed(text);
    }
    if text.is_ascii() {
        return Cow::Owned(text.to_ascii_lowercase());
    }
    let mut folded = String::with_capacity(text.len());
    for (index, name) in text.split('/').enumerate() {
        if index > 0 {
            folded.push('/');
        }
        let begin = folded.len();
        let cased = name
            .nfd()
            .filter(|c| !is_ignorable(*c))
            .flat_map(char::to_lowercase)
            .flat_map(char::to_uppercase)
            .flat_map(char::to_lowercase)
            .collect::<String>();
        // Case mapping may compose or decompose again, such as `ŉ` and the iota subscript.
        folded.extend(cased.nfc().filter(|c| !is_ignorable(*c)));
        if folded.len() == begin && !name.is_empty() {
            folded.push(IGNORED_NAME);
        }
    }
    Cow::Owned(folded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(spelling: &str, folded: &str) {
        assert_eq!(fold(spelling), folded, "{}", spelling.escape_unicode());
    }

    #[test]
    fn equal_names_fold_to_the_same_text() {
        check("src/main.rs", "src/main.rs");
        check(".GIT/Config", ".git/config");
        check(".g\u{200c}it", ".git");
        check("\u{feff}.env", ".env");
        check(".e\u{ad}nv", ".env");
        check("e\u{301}", "\u{e9}");
        check("E\u{301}", "\u{e9}");
        check("\u{212a}ey", "key");
        check("\u{17f}ecret", "secret");
        check("con\u{fb01}g", "config");
        check("STRASSE", "strasse");
        check("stra\u{df}e", "strasse");
        check("\u{131}d_rsa", "id_rsa");
        check("STRA\u{1e9e}E", "strasse");
        check("/a/\u{200c}\u{feff}/B", "/a/\u{200b}/b");
    }

    #[test]
    fn both_cases_of_every_character_fold_to_the_same_text() {
        for c in '\0'..=char::MAX {
            let (upper, lower): (String, String) =
                (c.to_uppercase().collect(), c.to_lowercase().collect());
            if upper != lower {
                let folded = fold(&lower).into_owned();
                for spelling in [&*upper, &c.to_string(), &*folded] {
                    check(spelling, &folded);
                }
            }
        }
    }

    #[test]
    fn ascii_lowercase_text_is_not_copied() {
        assert!(matches!(fold("/r/src/main.rs"), Cow::Borrowed(_)));
    }

    proptest! {
        #![proptest_config(crate::policy::tests::cases())]

        #[test]
        fn fold_is_idempotent(text in "[a-cA-C/.\u{df}\u{e9}\u{130}\u{131}\u{149}\u{17f}\u{1f80}\u{200b}\u{301}\u{345}\u{3c2}\u{1e9e}\u{fb01}]{0,12}") {
            let once = fold(&text).into_owned();
            prop_assert_eq!(fold(&once), &*once);
            prop_assert_eq!(once.matches('/').count(), text.matches('/').count());
        }
    }
}
