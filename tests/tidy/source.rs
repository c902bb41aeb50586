//! Rust source as the tidy rules see it: comments and literals blanked out, lines kept.

use std::fs;
use std::path::{Path, PathBuf};

/// The folders that hold Rust files of ours.
const RUST_FOLDERS: [&str; 5] = ["src", "tests", "examples", "benches", "fuzz"];

/// One Rust file.
pub(crate) struct Source {
    /// Path from the repository's root, with `/`.
    pub(crate) path: String,
    /// Every byte of it.
    pub(crate) text: String,
    /// The same length and lines, with comments, strings and characters blanked.
    pub(crate) code: String,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned(), code: blank_comments_and_literals(text) }
    }

    /// `path:line` of a byte offset.
    pub(crate) fn place(&self, offset: usize) -> String {
        format!("{}:{}", self.path, line_of(&self.code, offset))
    }

    /// The module directly under the crate's root that this file belongs to; none for `lib.rs` and outside `src`.
    pub(crate) fn top_module(&self) -> Option<&str> {
        let inside = self.path.strip_prefix("src/")?;
        let top = inside.split('/').next()?;
        let top = top.strip_suffix(".rs").unwrap_or(top);
        (top != "lib").then_some(top)
    }

    /// How many modules deep an offset of a file in `src` lies: 0 is the crate's root.
    pub(crate) fn depth(&self, offset: usize) -> usize {
        let inside = self.path.trim_start_matches("src/").trim_end_matches(".rs");
        let files = inside.split('/').filter(|part| !matches!(*part, "mod" | "lib")).count();
        let encloses = |at: &usize| {
            let open = self.code[*at..].find(['{', ';']).map(|length| at + length);
            let open = open.filter(|open| self.code[*open..].starts_with('{') && *open < offset);
            open.is_some_and(|open| closing(&self.code, open).is_some_and(|end| end > offset))
        };
        files + self.find_word("mod").filter(encloses).count()
    }

    /// Offsets at which `word` stands in the code, not as a part of a longer name.
    pub(crate) fn find_word<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        let bytes = self.code.as_bytes();
        let is_first_name = word.as_bytes().first().copied().is_some_and(is_name);
        let is_last_name = word.as_bytes().last().copied().is_some_and(is_name);
        self.code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
            let before = at.checked_sub(1).map(|i| bytes[i]);
            let after = bytes.get(at + word.len()).copied();
            let goes_on_before = is_first_name && before.is_some_and(is_name);
            let goes_on_after = is_last_name && after.is_some_and(is_name);
            !goes_on_before && !goes_on_after
        })
    }
}

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file of ours, in order of path.
pub(crate) fn rust_files() -> Vec<Source> {
    let paths = RUST_FOLDERS.iter().flat_map(|folder| files_under(&root().join(folder)));
    let sources: Vec<Source> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| Source::new(&relative(&path), &fs::read_to_string(&path).unwrap()))
        .collect();
    assert!(sources.len() > 10, "only {} Rust files found under {}", sources.len(), root().display());
    sources
}

/// Every file under a folder, without what builds leave behind; empty when there is no such folder.
pub(crate) fn files_under(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let keep = |path: &PathBuf| !matches!(path.file_name().and_then(|n| n.to_str()), Some("target" | ".git"));
    paths
        .into_iter()
        .filter(keep)
        .flat_map(|path| if path.is_dir() && !path.is_symlink() { files_under(&path) } else { vec![path] })
        .collect()
}

/// A path from the repository's root.
pub(crate) fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

/// Line number of an offset, from 1.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset].iter().filter(|&&byte| byte == b'\n').count() + 1
}

/// Offset of the bracket that closes the one at `open`.
pub(crate) fn closing(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// Whether a byte can be part of a name.
pub(crate) fn is_name(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric()
}

fn blank_comments_and_literals(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_or_comment_end(bytes, at);
        for (byte, &was) in out[at..end].iter_mut().zip(&bytes[at..end]) {
            if was != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Where the comment or literal that starts at `at` ends; `at` itself when none starts there.
fn literal_or_comment_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let inside_name = at > 0 && is_name(bytes[at - 1]);
    match rest {
        [b'/', b'/', ..] => at + rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => at + block_comment_length(rest),
        [b'"', ..] => at + quoted_length(rest, b'"'),
        [b'r', b'"' | b'#', ..] if !inside_name || ends_with_byte_prefix(bytes, at) => at + raw_string_length(rest),
        [b'\'', b'\\', ..] => at + quoted_length(rest, b'\''),
        [b'\'', ..] => at + character_length(rest),
        _ => at,
    }
}

fn ends_with_byte_prefix(bytes: &[u8], at: usize) -> bool {
    matches!(bytes[at - 1], b'b' | b'c') && (at < 2 || !is_name(bytes[at - 2]))
}

fn block_comment_length(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at + 1 < rest.len() {
        match &rest[at..at + 2] {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn quoted_length(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 1,
            byte if byte == quote => return at + 1,
            _ => {}
        }
        at += 1;
    }
    rest.len()
}

/// 0 when it is a raw name (`r#type`) and not a raw string.
fn raw_string_length(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|&&b| b == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let end = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
    let body = 2 + hashes;
    let found = rest[body..].windows(end.len()).position(|window| window == end);
    found.map_or(rest.len(), |position| body + position + end.len())
}

/// 0 when it is a lifetime and not a character.
fn character_length(rest: &[u8]) -> usize {
    let Some(&first) = rest.get(1) else { return 0 };
    let width = match first {
        0..0x80 => 1,
        0x80..0xE0 => 2,
        0xE0..0xF0 => 3,
        _ => 4,
    };
    if rest.get(1 + width) == Some(&b'\'') { width + 2 } else { 0 }
}
