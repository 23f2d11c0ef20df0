//! Secrets that the configuration names stay out of everything the daemon writes, and of the environment of tools.

use std::fs;

use serde_json::json;
use tenure_wire::Policy;

use crate::{
    reader::Reader,
    rig::{Daemon, Folder},
};

const SECRET: &str = "a-word-for-the-door-42";

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_of_the_configuration_is_written_nowhere() {
    let folder = Folder::new();
    folder.config(&format!("[secrets]\nDOOR = \"{SECRET}\"\n"));
    fs::write(folder.workspace().join("note"), format!("the word is {SECRET}\n")).unwrap();
    let shell = json!({ "name": "shell", "input": { "command": format!("echo {SECRET} > out; cat note") } });
    let steps = json!([
        { "do": [{ "text": format!("I say {SECRET}"), "chunk": 3 }, { "call": shell }] },
        { "do": [{ "text": "done" }] },
    ]);
    let model = folder.script(&json!({ "steps": steps }));
    let daemon = Daemon::start(folder.data()).await;
    let unasked = json!({ "approval": { "require_for_kinds": [] }, "verify": { "auto_verify": false } });
    let policy: Policy = serde_json::from_value(unasked).unwrap();
    let session = daemon.session_with(&folder.workspace(), &model, policy).await;
    let reader = Reader::start(&daemon, &session);
    daemon.send(&session, &format!("the word: {SECRET}")).await;
    reader.wait_kind("turn_completed").await;
    reader.assert_whole(&daemon, &session).await;
    assert_eq!(folder.holders_of(SECRET), Vec::<String>::new());
    assert!(reader.seen().iter().all(|seen| !seen.event.to_string().contains(SECRET)));
    // The command itself was given the word.
    assert_eq!(fs::read_to_string(folder.workspace().join("out")).unwrap(), format!("{SECRET}\n"));
}
