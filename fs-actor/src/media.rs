//! Detects the kind of a file from its first bytes.

/// How the content of a file is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Image(&'static str),
    Audio(&'static str),
    /// Binary, with a description.
    Other(&'static str),
    Text,
}

/// Number of bytes examined.
pub(crate) const HEAD: usize = 8192;

pub(crate) fn kind(bytes: &[u8]) -> Kind {
    let head = bytes.get(..HEAD).unwrap_or(bytes);
    let riff = |kind: &[u8]| head.starts_with(b"RIFF") && head.get(8..12) == Some(kind);
    match head {
        _ if head.starts_with(b"\x89PNG\r\n\x1a\n") => Kind::Image("image/png"),
        [0xff, 0xd8, 0xff, ..] => Kind::Image("image/jpeg"),
        _ if head.starts_with(b"GIF87a") || head.starts_with(b"GIF89a") => Kind::Image("image/gif"),
        _ if riff(b"WEBP") => Kind::Image("image/webp"),
        _ if riff(b"WAVE") => Kind::Audio("audio/wav"),
        _ if head.starts_with(b"fLaC") => Kind::Audio("audio/flac"),
        _ if head.starts_with(b"OggS\0") => Kind::Audio("audio/ogg"),
        _ if head.starts_with(b"ID3") && head.contains(&0) => Kind::Audio("audio/mpeg"),
        [0xff, 0xfb | 0xf3 | 0xf2, ..] => Kind::Audio("audio/mpeg"),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Kind::Other("UTF-16 text"),
        _ if head.starts_with(b"%PDF-") => Kind::Other("a PDF document"),
        _ if head.starts_with(b"PK\x03\x04") => Kind::Other("a ZIP archive"),
        [0x1f, 0x8b, ..] => Kind::Other("gzip data"),
        _ if head.starts_with(b"\x7fELF") => Kind::Other("an ELF program"),
        _ if head.starts_with(b"SQLite format 3\0") => Kind::Other("an SQLite database"),
        _ if memchr::memchr(0, head).is_some() => Kind::Other("binary data"),
        _ => Kind::Text,
    }
}

/// Describes binary content, such as `image/png` or `a ZIP archive`.
pub(crate) fn binary_type(bytes: &[u8]) -> &'static str {
    match kind(bytes) {
        Kind::Image(mime) | Kind::Audio(mime) => mime,
        Kind::Other(guess) => guess,
        Kind::Text => "text that is not UTF-8",
    }
}
