//! Files of the data folder that people and crashes change: the daemon says what is wrong, or passes over it, and never breaks.

use std::{fs, net::TcpListener};

use tenure_fuzzkit::{Target, target};

use crate::rig::Folder;

/// Each case starts a daemon.
const CASES: u64 = 20;
const CASES_MAX: u64 = 1000;

/// Starts a daemon on a port that is taken: it reads its files, and then has to give up.
fn gives_up(target: Target, file: &str) {
    let folder = Folder::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    fs::create_dir_all(folder.data()).unwrap();
    target.cases(CASES).at_most(CASES_MAX).run(|input| {
        fs::write(folder.data().join(file), input).unwrap();
        let output = folder.command(&["serve", "--listen", &listen]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{:?}: {said}", output.status);
        assert!(!said.contains("panicked"), "{said}");
        assert!(said.contains(file) || said.contains(&listen), "it names neither the file nor the port: {said}");
        assert_eq!(fs::read(folder.data().join(file)).unwrap(), input, "a file that people write was changed");
    });
}

#[test]
fn config() {
    gives_up(target!("config"), "config.toml");
}

#[test]
fn tokens() {
    gives_up(target!("tokens"), "tokens.json");
}

#[test]
fn always() {
    gives_up(target!("always"), "always.json");
}
