//! What the fuzz targets share.

/// Ends a part of an input. It is not in any UTF-8 text.
const END: u8 = 0xff;

/// The parts of an input; `None` if one is not text.
#[must_use]
pub fn parts(input: &[u8]) -> Option<Vec<&str>> {
    let parts = input.split(|byte| *byte == END);
    parts.map(|part| std::str::from_utf8(part).ok()).collect()
}

/// The parts of an input; `None` if there are others than `N`, or one is not text.
#[must_use]
pub fn parts_of<const N: usize>(input: &[u8]) -> Option<[&str; N]> {
    parts(input)?.try_into().ok()
}
