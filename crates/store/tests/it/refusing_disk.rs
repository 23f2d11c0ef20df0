//! Real disks that refuse: a limit on the size of files, and a file system that is full.

use std::{fs, path::Path, process::Command};

use tenure_store::{Error, SpoolPage, Store};

use crate::sample::*;

const IN_CHILD: &str = "TENURE_TEST_IN_CHILD";
/// How the shell says that it may not do what the test needs.
const NOT_ALLOWED: i32 = 77;

/// Runs a test's body in a process of its own, started through a line of shell that may set limits and then runs "$@".
/// Gives false if the shell could not do so.
pub fn in_a_child(test: &str, shell: &str, body: impl FnOnce()) -> bool {
    if std::env::var_os(IN_CHILD).is_some() {
        body();
        return true;
    }
    let output = Command::new("sh")
        .args(["-c", shell, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(IN_CHILD, "1")
        .output()
        .unwrap();
    if output.status.code() == Some(NOT_ALLOWED) {
        return false;
    }
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "{out}\n{err}");
    true
}

fn block_on(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work);
}

/// Appends until the disk refuses, then checks that nothing of the refused one is there and that it can be done again
/// after `make_room`.
async fn refused_and_done_again(folder: &Path, make_room: impl FnOnce()) {
    let (id, turn) = (session(1), turn(1));
    let store = open(folder);
    let (epoch, mut head) = store.create(id, &[created(id)]).await.unwrap();
    let text = "x".repeat(9000);
    let refused = loop {
        let decision = [message(id, head.seq + 1, &text), message(id, head.seq + 2, &text)];
        match store.append(id, epoch, head.seq, &decision).await {
            Ok(next) => head = next,
            Err(error) => break error,
        }
        assert!(head.bytes < 4 << 20, "the disk refuses nothing");
    };
    assert!(matches!(refused, Error::Disk { .. }), "{refused}");
    let log = folder.join("sessions").join(id.to_string()).join("events.ndjson");
    assert_eq!(fs::metadata(&log).unwrap().len(), head.bytes);
    assert_eq!(store.head(id).await.unwrap(), head);
    assert_eq!(read_all(&*store, id).await.len() as u64, head.seq);
    // A spool is cut back as well.
    let mut end = 0;
    let refused = loop {
        match store.spool_append(id, turn, &[delta(end, &text)]).await {
            Ok(ends) => end = ends[0],
            Err(error) => break error,
        }
        assert!(end < 4 << 20, "the disk refuses nothing");
    };
    assert!(matches!(refused, Error::Disk { .. }), "{refused}");
    assert_eq!(store.spool_read(id, turn, end, 100).await.unwrap(), SpoolPage::Records(vec![]));
    make_room();
    let next = message(id, head.seq + 1, "short");
    let grown = store.append(id, epoch, head.seq, &[next]).await.unwrap();
    drop(store);
    let store = open(folder);
    assert_eq!(store.head(id).await.unwrap(), grown);
    assert_eq!(read_all(&*store, id).await.len() as u64, grown.seq);
    assert!(store.notices().is_empty());
}

#[test]
fn a_file_that_may_not_grow_is_cut_back() {
    // Short writes, and then EFBIG; the signal that comes with it is passed over.
    let shell = "trap '' XFSZ; ulimit -f 200; exec \"$@\"";
    in_a_child("refusing_disk::a_file_that_may_not_grow_is_cut_back", shell, || {
        let folder = tempfile::tempdir().unwrap();
        block_on(refused_and_done_again(folder.path(), || {}));
    });
}

#[test]
fn a_full_disk_is_survived() {
    let shell = "
        unshare --user --map-root-user --mount true 2>/dev/null || exit 77
        exec unshare --user --map-root-user --mount sh -c '
            mount -t tmpfs -o size=512k tmpfs /mnt 2>/dev/null || exit 77
            exec \"$@\"' sh \"$@\"";
    let ran = in_a_child("refusing_disk::a_full_disk_is_survived", shell, || {
        fs::write("/mnt/ballast", vec![0; 64 << 10]).unwrap();
        let make_room = || fs::remove_file("/mnt/ballast").unwrap();
        block_on(refused_and_done_again(Path::new("/mnt/data"), make_room));
    });
    if !ran {
        eprintln!("skipped: a file system cannot be mounted here");
    }
}
