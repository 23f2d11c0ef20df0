//! A check beside a store that is written to sees no damage.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_check_beside_a_writer_finds_nothing() {
    let folder = fast_folder();
    write(folder.path()).await;
    let store = open_unsynced(folder.path());
    let (id, ended) = (session(1), Arc::new(AtomicBool::new(false)));
    let writer = tokio::spawn({
        let ended = ended.clone();
        async move {
            let epoch = store.claim(id).await.unwrap();
            let mut seq = 8;
            let long = "long ".repeat(20_000);
            while !ended.load(Ordering::Relaxed) {
                let next = [message(id, seq + 1, &long), message(id, seq + 2, "short")];
                seq = store.append(id, epoch, seq, &next).await.unwrap().seq;
                // Two rounds a turn: its record speaks of what is in the spool by then.
                let of = turn((seq + 2) / 4 + 100);
                store.spool_append(id, of, &[delta(0, &long)]).await.unwrap();
                if seq % 4 == 0 {
                    let spool = store.spool_close(id, of).await.unwrap();
                    let record = serde_json::json!({"id": of, "seq": seq, "spool": spool});
                    store.turn_put(id, of, record.to_string().into()).await.unwrap();
                }
                store.row_put(row(1, "active")).await.unwrap();
                if seq > 300 {
                    break;
                }
            }
        }
    });
    let options = CheckOptions { patience: Duration::from_millis(500), ..CheckOptions::default() };
    let path = folder.path().to_owned();
    let checks = tokio::task::spawn_blocking(move || {
        for _ in 0..12 {
            let found = upkeep::check(&path, &options, &mut |_, _| {}).unwrap();
            assert!(found.is_clean(), "{:?}", found.findings);
        }
    });
    checks.await.unwrap();
    ended.store(true, Ordering::Relaxed);
    writer.await.unwrap();
}
