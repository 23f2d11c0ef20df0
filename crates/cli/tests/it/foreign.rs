//! Tools that a workspace brings: asked about once, offered as recorded, and never run a second time after SIGKILL.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use serde_json::{Value, json};
use tenure_wire::{Approve, Policy, Verdict};

use crate::{
    reader::{Reader, Seen},
    rig::{Daemon, Folder},
};

/// A plugin that notes each call, and answers unless it is told to hang.
const PLUGIN: &str = r#"#!/bin/sh
read -r line
case "$line" in *describe*)
  echo '{"type":"tools","tools":[{"name":"note","description":"Notes.","input_schema":{"type":"object","properties":{"hang":{"type":"boolean"}}}}]}'
  exit;;
esac
id=$(echo "$line" | sed 's/.*"id":"\([^"]*\)".*/\1/')
echo x >> noted
case "$line" in *'"hang":true'*) echo '{"type":"progress","id":"'$id'","text":"hanging"}'; sleep 1000.75;; esac
echo '{"type":"result","id":"'$id'","text":"noted"}'
"#;

fn put_plugin(workspace: &Path, text: &str) {
    let folder = workspace.join(".agents/tools/notes");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("tool"), text).unwrap();
    fs::set_permissions(folder.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
}

fn call(name: &str, input: Value) -> Value {
    json!({ "do": [{ "call": { "name": name, "input": input } }] })
}

fn policy(attended: bool) -> Policy {
    serde_json::from_value(json!({ "approval": { "attended": attended }, "verify": { "auto_verify": false } })).unwrap()
}

async fn begin(daemon: &Daemon, folder: &Folder, steps: Value, policy: Policy) -> (String, Reader) {
    let model = folder.script(&json!({ "steps": steps, "after": "stop" }));
    let session = daemon.session_with(&folder.workspace(), &model, policy).await;
    let reader = Reader::start(daemon, &session);
    (session, reader)
}

async fn approve(daemon: &Daemon, session: &str, asked: &Seen) {
    let tool_call_id = asked.data("tool_call_id").as_str().unwrap().to_owned();
    let yes = Approve { tool_call_id, action: Verdict::Approve, ..Approve::default() };
    daemon.client().approve(session, &yes).await.unwrap();
}

fn noted(folder: &Folder) -> usize {
    fs::read_to_string(folder.workspace().join("noted")).unwrap_or_default().lines().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_is_asked_about_once_offered_as_recorded_and_never_run_twice() {
    let folder = Folder::new();
    put_plugin(&folder.workspace(), PLUGIN);
    let mut daemon = Daemon::start(folder.data()).await;
    let steps = json!([
        call("plugin_connect__notes", json!({})),
        call("plugin__notes__note", json!({})),
        call("plugin__notes__note", json!({ "hang": true })),
        { "do": [{ "text": "done" }] }
    ]);

    // Nobody can be asked, so nothing is run.
    let (session, reader) = begin(&daemon, &folder, steps.clone(), policy(false)).await;
    daemon.send(&session, "go").await;
    reader.wait_kind("turn_completed").await;
    let outcomes: Vec<Value> =
        reader.of_kind("tool_call_completed").iter().map(|done| done.data("outcome").clone()).collect();
    assert_eq!(outcomes, [json!("not_run"), json!("not_run"), json!("not_run")]);
    assert!(!folder.data().join("foreign/approved.ndjson").exists());

    let (session, reader) = begin(&daemon, &folder, steps, policy(true)).await;
    daemon.send(&session, "go").await;
    let mut answered: Vec<String> = vec![];
    for at in 0..3 {
        let is_new = |seen: &Seen| seen.kind == "approval_requested" && !answered.contains(&seen.id);
        let asked = reader.wait("a question", is_new).await;
        answered.push(asked.id.clone());
        if at == 0 {
            assert!(asked.data("subject").as_str().unwrap().starts_with(".agents/tools/notes/tool\nfiles: 1 ("));
            assert_eq!(noted(&folder), 0);
            // The question survives the daemon.
            daemon.restart().await;
        }
        approve(&daemon, &session, &asked).await;
    }
    reader.wait("the call is under way", |seen| seen.kind == "tool_output_delta").await;
    assert_eq!(noted(&folder), 2);
    daemon.kill9();
    daemon.restart().await;
    reader.wait_kind("turn_interrupted").await;
    let state = daemon.client().session(&session).await.unwrap();
    assert_eq!(state.status, "active");
    let turn = reader.of_kind("turn_started")[0].event["turn_id"].as_str().unwrap().to_owned();
    daemon.client().resume(&session, &turn).await.unwrap();
    reader.wait_kind("turn_completed").await;
    reader.assert_whole(&daemon, &session).await;
    let done = reader.of_kind("tool_call_completed");
    assert_eq!(done.last().unwrap().data("outcome"), "unknown");
    assert_eq!(noted(&folder), 2, "an unknown call is not run again");
    let offered: Vec<Vec<String>> = reader
        .of_kind("tools_offered")
        .iter()
        .map(|offered| {
            let tools = offered.data("tools").as_array().unwrap();
            tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
        })
        .collect();
    assert_eq!(offered, [["plugin_connect__notes"], ["plugin__notes__note"]]);

    // Once approved it is not asked about again, until a byte of it changes.
    let names = |ran: Value| -> Vec<Value> {
        let tools = ran["tools"].as_array().unwrap().iter().filter(|tool| tool["source"] == "plugin:notes");
        tools.map(|tool| tool["name"].clone()).collect()
    };
    let workspace = folder.workspace();
    let list = || folder.tenure(&["tools", "--json", "--workspace", workspace.to_str().unwrap()]).exits(0).json();
    assert_eq!(names(list()), ["plugin__notes__note"]);
    put_plugin(&workspace, &format!("{PLUGIN}\n"));
    assert_eq!(names(list()), ["plugin_connect__notes"]);
    let shown = folder.tenure(&["tools", "--workspace", workspace.to_str().unwrap()]).exits(0).stdout;
    assert!(shown.contains("plugin:notes: named by this folder and not approved"), "{shown}");
    daemon.stop().await;
}

#[test]
fn the_doctor_starts_configured_servers_and_says_what_is_wrong() {
    let folder = Folder::new();
    folder.config(
        "[mcp_servers.gone]\ncommand = \"/no/such/server\"\n\n[mcp_servers.off]\ncommand = \"x\"\nenabled = false",
    );
    let checked = folder.tenure(&["doctor", "--json"]).exits(1).json();
    let of = |name: &str| checked["checks"].as_array().unwrap().iter().find(|check| check["name"] == name).cloned();
    let gone = of("mcp gone").unwrap();
    assert_eq!(gone["state"], "wrong");
    assert!(gone["found"].as_str().unwrap().contains("/no/such/server cannot be started"), "{gone}");
    assert_eq!(of("mcp off"), None);
}
