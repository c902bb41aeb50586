//! When a batch is committed.

use std::time::Duration;

use super::*;

#[tokio::test(start_paused = true)]
async fn what_can_be_sent_again_waits_longer_and_what_cannot_takes_it_along() {
    let folder = tempfile::tempdir().unwrap();
    let longer = |config: &mut Config| config.commit_every_resendable = Duration::from_secs(10);
    let site = site_with(folder.path(), clock(), longer, 1000, 100).await;
    let start = tokio::time::Instant::now();
    site.commit(Delivery::of(vec![reading("mqtt", 1, Value::I64(1))])).await;
    assert_eq!(start.elapsed().as_secs(), 10, "nobody loses it: the broker keeps it");
    let (to, mut receipts) = mpsc::channel(1);
    let kept = Delivery { receipt: Some(Receipt::new(to, 7)), ..Delivery::of(vec![reading("mqtt", 2, Value::I64(2))]) };
    let start = tokio::time::Instant::now();
    site.inlet.push(kept).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    site.push("serial", 3, Value::I64(3)).await;
    assert_eq!(receipts.recv().await, Some(7));
    assert_eq!(start.elapsed().as_secs(), 4, "commit_every after the one that cannot be sent again");
    assert!(site.stats.store().written.get() >= 2 * 4096, "each commit writes a block at least");
    site.stop().await;
}
