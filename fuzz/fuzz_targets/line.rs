//! Lines of text: cut out of a stream, and read in each form.
#![no_main]

use std::collections::HashMap;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use regex::Regex;
use tipbucket::decode::line::{FixedColumn, Form, Piece, Rules, Splitter};
use tipbucket::decode::shape::Decimal;
use tipbucket::decode::times::Local;
use tipbucket::model::Timestamp;

/// Longest line.
const MAX_LINE: usize = 256;

fuzz_target!(|input: &[u8]| {
    let Some((first, stream)) = input.split_first() else { return };
    let size = usize::from(*first).max(1);
    for delimiter in ["\n", "\r", "\r\n", "&&"] {
        let whole = lines(delimiter, stream, stream.len().max(1));
        assert_eq!(lines(delimiter, stream, size), whole);
        whole.iter().for_each(|line| read(line));
    }
});

fn lines(delimiter: &str, stream: &[u8], size: usize) -> Vec<Vec<u8>> {
    let mut splitter = Splitter::new(delimiter, MAX_LINE);
    let mut found = Vec::new();
    for piece in stream.chunks(size) {
        splitter.push(piece, |piece| {
            let (Piece::Line { bytes, .. } | Piece::TooLong { head: bytes, .. }) = piece;
            assert!(bytes.len() <= MAX_LINE);
            found.push(bytes.to_vec());
        });
    }
    found
}

fn read(line: &[u8]) {
    let Ok(line) = std::str::from_utf8(line) else { return };
    let local = Local { zone: None, arrival: Timestamp::clamped(1_772_366_400_000) };
    for rules in RULES.iter() {
        if let Ok(Some(decoded)) = rules.decode(line, local) {
            assert!(decoded.fields.iter().all(|(_, value)| value.is_sound()));
        }
    }
}

/// Each form; made once, for an expression costs more than many lines.
static RULES: LazyLock<Vec<Rules>> = LazyLock::new(|| {
    let column = |name: &str, at, hex| FixedColumn { name: name.to_owned(), at, width: 4, hex };
    let forms = [
        Form::Regex(vec![Regex::new("(?<a>.*?)(?<b>-?[0-9]+)").expect("a pattern")]),
        Form::Csv { columns: vec![Some("a".to_owned()), None, Some("b".to_owned())], separator: ';' },
        Form::KeyValue { pairs: vec![' ', ','], assign: vec!['=', ':'], wanted: Vec::new() },
        Form::Fixed { prefix: String::new(), columns: vec![column("a", 0, None), column("b", 4, Some(true))] },
        Form::Json { wanted: Vec::new() },
    ];
    forms.map(rules).into()
});

fn rules(form: Form) -> Rules {
    Rules {
        form,
        skip: Vec::new(),
        strip: Vec::new(),
        sensor_field: None,
        time_field: None,
        text_fields: Vec::new(),
        decimal: Decimal::Comma,
        suffixes: vec!["V".to_owned()],
        hex_fields: Vec::new(),
        options: HashMap::new(),
    }
}
