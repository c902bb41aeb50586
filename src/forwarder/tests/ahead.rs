//! The next command's documents, made while one is under way.

use super::super::ahead::Ahead;
use super::super::window::Window;
use super::*;
use crate::store::Parcel;
use crate::upstream::Retention;

/// Most documents and bytes of a command.
const LIMITS: (usize, usize) = (400, 1 << 20);

/// A backlog of segments, and lanes that hold a command under way.
fn under_way(world: &Shared, segments: u64) -> (FakeBacklog, Lanes) {
    let names: Vec<String> = (0..240).map(|i| format!("s{i:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    (1..=segments).for_each(|id| world.segment(id, &names));
    (FakeBacklog::new(world), Lanes::new(context(), 0))
}

async fn prepare(backlog: &mut FakeBacklog, lanes: &mut Lanes, answered: &AtomicBool, shutdown: &CancellationToken) {
    let (stats, now) = (Stats::default(), Timestamp::EPOCH);
    let stats = stats.upstream();
    Ahead { backlog, lanes, lane: Lane::New, limits: LIMITS, now, stats, shutdown, answered }.prepare().await;
}

#[tokio::test(start_paused = true)]
async fn one_command_is_prepared_whatever_the_backlog() {
    let (world, end) = (Shared::default(), CancellationToken::new());
    let (mut backlog, mut lanes) = under_way(&world, 50);
    prepare(&mut backlog, &mut lanes, &AtomicBool::new(false), &end).await;
    assert_eq!((lanes.new.len(), lanes.open_segments()), (400, 2), "as much as a command holds, and no segment more");
    // What is under way comes back before what was made meanwhile.
    let first = lanes.new.take(240, Timestamp::EPOCH);
    prepare(&mut backlog, &mut lanes, &AtomicBool::new(false), &end).await;
    assert_eq!((lanes.new.len(), lanes.open_segments()), (400, 3));
    let ids: Vec<String> = first.iter().map(|document| document.id.clone()).collect();
    lanes.new.put_back(first);
    let back = lanes.new.take(640, Timestamp::EPOCH);
    assert_eq!(back.len(), 640);
    assert_eq!(back.iter().take(240).map(|document| document.id.clone()).collect::<Vec<_>>(), ids);
    assert_eq!(back.iter().skip(240).take(240).map(|document| document.id.clone()).collect::<Vec<_>>(), ids);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_prepared_once_the_answer_is_there_or_the_daemon_stops() {
    for is_stopping in [false, true] {
        let (world, end) = (Shared::default(), CancellationToken::new());
        let (mut backlog, mut lanes) = under_way(&world, 3);
        if is_stopping {
            end.cancel();
        }
        prepare(&mut backlog, &mut lanes, &AtomicBool::new(!is_stopping), &end).await;
        assert_eq!((lanes.new.len(), lanes.open_segments()), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn others_have_their_turn_while_a_command_is_prepared() {
    let (world, end) = (Shared::default(), CancellationToken::new());
    let (mut backlog, mut lanes) = under_way(&world, 3);
    let (answered, mut turns) = (AtomicBool::new(false), 0);
    tokio::select! {
        biased;
        () = prepare(&mut backlog, &mut lanes, &answered, &end) => {}
        () = async {
            loop {
                turns += 1;
                tokio::task::yield_now().await;
            }
        } => {}
    }
    let bytes: usize = lanes.new.take(400, Timestamp::EPOCH).iter().map(crate::upstream::Document::bytes).sum();
    assert!(bytes > 150_000 && turns >= bytes / (40 << 10), "{turns} turns for {bytes} bytes");
}

#[test]
fn what_was_given_away_and_is_not_stored_is_made_again_as_it_was() {
    let kept = Retention { after_window: Duration::ZERO, after_sending: Duration::from_secs(60) };
    let mut window = Window::new(Context { retention: Some(kept), ..context() });
    let buckets = vec![PackedBucket::pack(&samples::bucket("a", 0, 0, &[(0, 1.0)]))];
    window.add(Parcel { id: SegmentId(1), buckets });
    let (stats, now) = (Stats::default(), Timestamp::EPOCH.plus(Duration::from_secs(86_400)));
    while window.fill_slice(LIMITS, now, stats.upstream()) {}
    let mut sent = window.take(1, now);
    let bytes = sent[0].give();
    assert!(bytes.get_datetime("expireAt").is_ok());
    window.put_back(sent);
    let later = now.plus(Duration::from_secs(10));
    window.apply(&Report::default(), 1, later, stats.upstream());
    assert_eq!(window.take(1, later)[0].bson(), &bytes);
}
