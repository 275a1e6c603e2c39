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
