//! The way out in two lanes: what waits is put behind what comes.

use super::*;

/// One segment for each of these minutes; waits until it can be drawn.
async fn sealed(site: &Site, minutes: std::ops::Range<i64>) {
    for minute in minutes {
        site.commit(Delivery::of(vec![reading("a", minute * 60, Value::I64(minute))])).await;
        tokio::time::sleep(Duration::from_secs(100)).await;
    }
}

fn minute(parcel: &Parcel) -> i64 {
    values(&parcel.buckets[0].unpack().unwrap())[0].0 / 60
}

#[tokio::test(start_paused = true)]
async fn what_is_put_behind_is_drawn_apart_from_what_comes() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = site(folder.path(), clock()).await;
    sealed(&site, 0..4).await;
    assert!(site.outlet.has_next());
    let first = site.outlet.next().await.unwrap().unwrap();
    assert_eq!(minute(&first), 0);
    site.outlet.split();
    assert!(!site.outlet.has_next());
    sealed(&site, 5..7).await;
    let mut drawn = Vec::new();
    for _ in 0..2 {
        drawn.push(minute(&site.outlet.next().await.unwrap().unwrap()));
        drawn.push(minute(&site.outlet.next_old().await.unwrap().unwrap()));
    }
    assert_eq!(drawn, [5, 1, 6, 2]);
    sealed(&site, 8..10).await;
    site.outlet.split();
    let mut old = Vec::new();
    while let Some(parcel) = site.outlet.next_old().await.unwrap() {
        old.push(minute(&parcel));
    }
    assert_eq!(old, [3, 8, 9], "a second outage's backlog comes after the first's");
    site.outlet.rewind();
    let mut all = Vec::new();
    while site.outlet.has_next() {
        all.push(minute(&site.outlet.next().await.unwrap().unwrap()));
    }
    assert_eq!(all, [0, 1, 2, 3, 5, 6, 8, 9]);
    assert!(site.outlet.next_old().await.unwrap().is_none());
    site.stop().await;
}
