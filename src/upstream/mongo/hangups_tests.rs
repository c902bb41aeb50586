//! A server that hangs up, made of plain rules: who is found, and who is not.

use super::super::Fate;
use super::breaker::Breaker;
use super::deliver::Answer;
use super::deliver_tests::{Database, documents, fates, problem, send};

/// Sends what is left again and again, each time with one more that is fresh; what became of these in the end, all that
/// was told, and after how many rounds nothing was left.
async fn rounds(database: &mut Database, names: &[&str], most: usize) -> (String, Vec<String>, usize) {
    let (mut sent, mut breaker) = (documents(names), Breaker::default());
    let (mut letters, mut words) = (vec!['-'; names.len()], Vec::new());
    let mut left: Vec<usize> = (0..names.len()).collect();
    for round in 1..=most {
        sent.extend(documents(&[&format!("n{round}")]));
        let report = send(database, &mut breaker, &mut sent).await.report;
        sent.truncate(left.len());
        let told: Vec<char> = fates(&report).chars().collect();
        left.iter().zip(&told).for_each(|(&i, &letter)| letters[i] = letter);
        words.extend(report.trouble.map(|trouble| trouble.text));
        words.extend(report.fates.into_iter().filter_map(|fate| match fate {
            Fate::Refused(text) => Some(text),
            _ => None,
        }));
        let mut kept = told.iter().map(|&letter| letter == '-');
        sent.retain(|_| kept.next().unwrap());
        left = left.into_iter().zip(&told).filter(|(_, letter)| **letter == '-').map(|(i, _)| i).collect();
        if sent.is_empty() {
            return (letters.iter().collect(), words, round);
        }
    }
    (letters.iter().collect(), words, most)
}

const EIGHT: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

#[tokio::test]
async fn whoever_makes_the_server_hang_up_is_found_and_put_aside_and_the_others_are_sent() {
    let mut database = Database { closes: vec!["f"], pings: true, ..Database::default() };
    let (fates, words, rounds) = rounds(&mut database, &EIGHT, 50).await;
    assert_eq!((fates.as_str(), rounds), ("dddddxdd", 7));
    assert_eq!(database.commands[..11], [9, 9, 9, 4, 5, 2, 1, 1, 3, 1, 1]);
    assert_eq!(words[0], "unexpected end of file");
    assert!(words[2].contains("f|20") && words[2].contains("1 times so far, a dead letter after 5"), "{words:?}");
    let last = words.last().unwrap();
    assert!(last.contains("whenever it is sent this bucket alone (5 times)"), "{last}");
    assert!(last.contains("unexpected end of file") && last.contains("tries)"), "{last}");
}

#[tokio::test]
async fn in_an_outage_nothing_is_put_aside() {
    // Everything is hung up on: with and without an answer to a ping.
    for pings in [false, true] {
        let mut database = Database { closes: vec!["s/"], pings, ..Database::default() };
        let (mut sent, mut breaker) = (documents(&EIGHT), Breaker::default());
        for _ in 0..100 {
            assert_eq!(fates(&send(&mut database, &mut breaker, &mut sent).await.report), "--------", "pings: {pings}");
        }
        // As far down as to two single ones, and no further.
        let commands = database.commands.len();
        assert!(commands <= 100 * 5, "{commands} commands in a hundred rounds");
        // It is over: whoever was suspected meanwhile is sent.
        database.closes.clear();
        assert_eq!(fates(&send(&mut database, &mut breaker, &mut sent).await.report), "dddddddd", "pings: {pings}");
    }
    // Who makes it hang up is not looked for in an outage.
    let mut database = Database { closes: vec!["f"], pings: false, ..Database::default() };
    let (fates, ..) = rounds(&mut database, &EIGHT, 100).await;
    assert_eq!((fates.as_str(), database.commands.len()), ("--------", 100));
}

#[tokio::test]
async fn one_document_alone_is_no_proof() {
    let mut database = Database { closes: vec!["f"], pings: true, ..Database::default() };
    let (mut sent, mut breaker) = (documents(&["f"]), Breaker::default());
    for _ in 0..50 {
        assert_eq!(fates(&send(&mut database, &mut breaker, &mut sent).await.report), "-");
    }
    // Others come: now it is seen that they are taken.
    for tries in 1..=5 {
        let next = documents(&[EIGHT[tries - 1]]);
        let mut both = [sent.clone(), next].concat();
        let report = send(&mut database, &mut breaker, &mut both).await.report;
        assert_eq!(fates(&report), if tries < 5 { "-d" } else { "xd" }, "{tries}");
        sent = both[..1].to_vec();
    }
}

#[tokio::test]
async fn who_is_answered_is_suspected_no_more() {
    let mut database = Database { closes: vec!["f"], pings: true, ..Database::default() };
    let (mut sent, mut breaker) = (documents(&["f", "a"]), Breaker::default());
    for tries in 1..=20 {
        // Each time before the last straw the server says something else.
        if tries % 6 == 0 {
            let busy = Answer::Failed(problem(112, "write conflict"));
            database.script = vec![Answer::Ran { errors: vec![], concern: None }, busy];
        }
        let report = send(&mut database, &mut breaker, &mut sent).await.report;
        assert!(fates(&report).starts_with('-'), "{tries}");
    }
}

#[tokio::test]
async fn many_that_make_it_hang_up_are_not_believed() {
    let mut database = Database { closes: vec!["c", "d", "e"], pings: true, ..Database::default() };
    let (fates, words, _) = rounds(&mut database, &EIGHT, 50).await;
    assert_eq!(fates, "dd---ddd");
    assert!(words.last().unwrap().contains("nothing is dropped"), "{words:?}");
}
