//! Whatever the line does, no value stands under a wrong name.

use tokio::sync::mpsc;

use super::*;

/// A device that answers in order, one request after the other; three requests wait in it, more are lost.
async fn device(stream: DuplexStream, mut random: fastrand::Rng, latency: std::ops::Range<u64>, faults: bool) {
    let (mut requests, mut replies) = tokio::io::split(stream);
    let (queue, mut queued) = mpsc::channel::<Vec<u8>>(3);
    let hear = async move {
        let mut request = [0; 8];
        while requests.read_exact(&mut request).await.is_ok() {
            let _ = queue.try_send(request.to_vec());
        }
    };
    let speak = async move {
        while let Some(request) = queued.recv().await {
            let slow = if random.u8(..) < 200 { latency.start..latency.start + 20 } else { latency.clone() };
            tokio::time::sleep(Duration::from_millis(random.u64(slow))).await;
            let mut bytes = answer(&request);
            match random.u8(..) {
                _ if !faults => {}
                0..20 => continue,
                // Up to three wrong bits: CRC-16 finds them all.
                20..40 => (0..3).for_each(|_| bytes[random.usize(..7)] ^= 1 << random.u8(..8)),
                40..60 => bytes = [&vec![random.u8(..); random.usize(1..40)], &bytes[..]].concat(),
                60..80 => bytes = bytes.repeat(2),
                80..100 => bytes = [&request[..], &bytes].concat(),
                100..120 => bytes = with_crc(&[1, 0x84, random.u8(1..12)]),
                _ => {}
            }
            for piece in bytes.chunks(random.usize(1..8)) {
                replies.write_all(piece).await.unwrap();
                tokio::time::sleep(Duration::from_millis(random.u64(0..5))).await;
            }
        }
    };
    tokio::join!(hear, speak);
}

async fn check(seed: u64, latency: std::ops::Range<u64>, faults: bool) {
    let (ours, theirs) = tokio::io::duplex(4096);
    let (intake, mut deliveries) = intake();
    let mut master = master(settings(&[1], 6, 1));
    let (mut all, mut wrong) = (0, Vec::new());
    let collect = async {
        while let Some((delivery, weight)) = deliveries.next().await {
            deliveries.release(weight as usize);
            for (name, value) in delivery.readings.iter().flat_map(values) {
                all += 1;
                if value != Value::I64(name[1..].parse().unwrap()) {
                    wrong.push((name, value));
                }
            }
        }
    };
    tokio::select! {
        end = master.serve(ours, "pipe", &intake) => panic!("{end:?}"),
        () = device(theirs, fastrand::Rng::with_seed(seed), latency.clone(), faults) => panic!("the device went away"),
        () = collect => panic!("the store went away"),
        () = tokio::time::sleep(Duration::from_secs(1200)) => {}
    }
    assert!(wrong.is_empty(), "seed {seed}, latency {latency:?}: {} of {all}: {wrong:?}", wrong.len());
    assert!(all > 100, "seed {seed}, latency {latency:?}: only {all} values");
}

/// One under emulation, where twenty minutes of a line take half a minute.
fn seeds() -> u64 {
    if std::env::var_os("TIPBUCKET_TEST_RUNNER").is_some() { 1 } else { 3 }
}

#[tokio::test(start_paused = true)]
async fn a_device_slower_than_the_timeout_never_gives_a_wrong_value() {
    for seed in 0..seeds() {
        check(seed, 100..700, false).await;
        check(seed, 10..2000, false).await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_fault_of_the_line_gives_a_wrong_value() {
    for seed in 0..seeds() {
        check(seed, 5..50, true).await;
        check(seed, 5..900, true).await;
    }
}
