//! Output of commands: plain text tables and JSON lines.

use serde::Serialize;

use bailiwick::audit::json_line;
use bailiwick::text::escape;

/// Returns `-` for an empty text.
pub(crate) fn or_dash(text: &str) -> String {
    if text.is_empty() { "-" } else { text }.to_owned()
}

/// Formats a table with aligned columns. Cells are escaped, so each row is one line.
pub(crate) fn table<const N: usize>(
    head: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let head = head.map(str::to_owned);
    let rows: Vec<[String; N]> = std::iter::once(head)
        .chain(rows.map(|row| row.map(|cell| escape(&cell).into_owned())))
        .collect();
    let mut widths = [0; N];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// Formats each item as a line of JSON.
pub(crate) fn json_lines<'i, T: Serialize + 'i>(
    items: impl IntoIterator<Item = &'i T>,
) -> serde_json::Result<String> {
    let lines = items.into_iter().map(json_line);
    Ok(lines.collect::<Result<Vec<_>, _>>()?.join("\n"))
}
