//! The program itself does its main job: MQTT in, documents in a database out.

use std::time::Duration;

use crate::support::daemon::Daemon;

#[test]
fn it_starts_answers_stops_and_starts_again() {
    let mut daemon = Daemon::new(
        "[site]\nname = 'greenhouse-7'\n[upstream]\ntype = 'archive'\nfolder = '@DIR@/archive'\n[sources.simulation]\ntype = 'simulated'\n",
    );
    std::fs::create_dir(daemon.folder().join("archive")).unwrap();
    daemon.start();
    daemon.until("readings", Duration::from_secs(10), |status| status.store.readings > 0);
    daemon.kill();
    daemon.start();
    let (status, took) = daemon.terminate();
    assert!(status.success(), "{status}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}
