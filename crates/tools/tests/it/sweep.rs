//! `sweep_leftovers` ends what is ours and nothing else.

use std::process::{Child, Command};

use serde_json::json;
use tenure_tools::{MARK_VARIABLE, sweep_leftovers};

use crate::rig::unique;

struct Sleeper(Child);

impl Sleeper {
    fn start(mark: Option<&str>) -> Self {
        let mut command = Command::new("sleep");
        command.arg("1000").env_remove(MARK_VARIABLE);
        if let Some(mark) = mark {
            command.env(MARK_VARIABLE, mark);
        }
        Self(command.spawn().unwrap())
    }

    fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    fn line(&self) -> String {
        format!("ended a leftover process: sleep (pid {})", self.0.id())
    }

    fn record(&self, start_time_off_by: u64, boot_id: &str) -> String {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        let start_time: u64 = stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().parse().unwrap();
        json!({"pid": self.0.id(), "start_time": start_time + start_time_off_by, "boot_id": boot_id}).to_string()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned()
}

#[test]
fn only_the_exact_mark_counts() {
    let mark = unique().to_string();
    let longer = format!("{mark}0");
    let mut ours = [Sleeper::start(Some(&mark)), Sleeper::start(Some(&mark))];
    let mut others = [Sleeper::start(Some(&longer)), Sleeper::start(Some(&mark[..5])), Sleeper::start(None)];
    let mut lines = sweep_leftovers(std::path::Path::new("/nowhere"), &mark);
    let mut expected = ours.each_ref().map(Sleeper::line);
    lines.sort();
    expected.sort();
    assert_eq!(lines, expected);
    assert_eq!(ours.each_mut().map(Sleeper::is_running), [false, false]);
    assert_eq!(others.each_mut().map(Sleeper::is_running), [true, true, true]);
    assert_eq!(sweep_leftovers(std::path::Path::new("/nowhere"), &mark), Vec::<String>::new());
}

#[test]
fn an_empty_mark_fits_nobody() {
    let mut empty = Sleeper::start(Some(""));
    assert_eq!(sweep_leftovers(std::path::Path::new("/nowhere"), ""), Vec::<String>::new());
    assert!(empty.is_running());
}

#[test]
fn a_record_counts_only_with_its_start_time_and_since_the_same_boot() {
    let ledger = tempfile::tempdir().unwrap();
    let mut sleepers = [Sleeper::start(None), Sleeper::start(None), Sleeper::start(None)];
    let [real, reused, rebooted] = &sleepers;
    let records = [real.record(0, &boot_id()), reused.record(1, &boot_id()), rebooted.record(0, "another")];
    for (at, record) in records.iter().enumerate() {
        std::fs::write(ledger.path().join(format!("call_{at}")), record).unwrap();
    }
    std::fs::write(ledger.path().join("torn"), "{\"pid\":").unwrap();
    let expected = vec![real.line()];
    assert_eq!(sweep_leftovers(ledger.path(), &unique().to_string()), expected);
    assert_eq!(sleepers.each_mut().map(Sleeper::is_running), [false, true, true]);
    assert_eq!(std::fs::read_dir(ledger.path()).unwrap().count(), 0, "the ledger is cleared");
}

/// A daemon that was started from inside a command of an earlier one carries the mark itself.
#[test]
fn it_never_ends_itself_or_those_it_descends_from() {
    if let Ok(mark) = std::env::var("TENURE_TEST_SWEEP") {
        assert_eq!(sweep_leftovers(std::path::Path::new("/nowhere"), &mark), Vec::<String>::new());
        return;
    }
    let mark = unique().to_string();
    let own = std::env::current_exe().unwrap();
    let line = format!("'{}' --exact sweep::it_never_ends_itself_or_those_it_descends_from; exit $?", own.display());
    let status = Command::new("sh")
        .args(["-c", &line])
        .env(MARK_VARIABLE, &mark)
        .env("TENURE_TEST_SWEEP", &mark)
        .stdout(std::process::Stdio::null())
        .status();
    assert!(status.unwrap().success());
}
