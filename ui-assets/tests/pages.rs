//! The committed pages.

use std::path::Path;

#[test]
fn no_page_makes_code_or_markup_of_text() {
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
        for way in [
            "eval(",
            "new Function",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "setTimeout(\"",
        ] {
            assert!(!text.contains(way), "{} has `{way}`", path.display());
        }
    }
}
