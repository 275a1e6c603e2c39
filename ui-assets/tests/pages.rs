//! The committed pages.

use std::path::Path;

#[test]
fn pages_do_not_evaluate_text_as_code_or_markup() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let example = here.join("../examples/mcp/examples/hr_dashboard");
    let files = [here.join("dist"), example].map(|folder| std::fs::read_dir(folder).unwrap());
    for file in files.into_iter().flatten() {
        let path = file.unwrap().path();
        let kind = path.extension().unwrap();
        if kind == "rs" || kind == "json" {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for call in [
            "eval(",
            "new Function",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "setTimeout(\"",
        ] {
            assert!(!text.contains(call), "{} has `{call}`", path.display());
        }
    }
}

#[test]
fn review_data_cannot_end_its_script_element() {
    let data = "{\"text\":\"</script><!--<script>\u{2028}\u{2029}&amp;\"}";
    let page = bailiwick_ui::review_page(data);
    let (before, rest) = page
        .split_once(r#"<script type="application/json" id="data">"#)
        .unwrap();
    let (inside, _) = rest.split_once("</script>").unwrap();
    assert!(!before.contains("<script"));
    let escaped =
        r#"{"text":"\u003c/script\u003e\u003c!--\u003cscript\u003e\u2028\u2029\u0026amp;"}"#;
    assert_eq!(inside, escaped);
}

/// Names in `css` that begin with `start` at the beginning of a selector or declaration.
fn names(css: &str, start: &str) -> Vec<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let parts = css.split(['{', '}', ';', ',']);
    let names = parts.filter_map(|part| part.strip_prefix(start)?.split(|c| !is_name(c)).next());
    names.map(|name| format!("{start}{name}")).collect()
}

#[test]
fn served_variables_and_classes_are_documented() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let variables = names(bailiwick_ui::TOKENS_CSS, "--");
    let classes = names(bailiwick_ui::UTILITIES_CSS, ".");
    assert!(variables.len() > 20 && classes.len() > 4);
    for name in variables.into_iter().chain(classes) {
        assert!(readme.contains(&format!("`{name}`")), "{name}");
    }
}
