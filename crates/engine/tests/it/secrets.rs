//! Known secrets reach neither log, spool nor stream; the tool gets the real value back.

use serde_json::json;
use tenure_core::{
    command::Command,
    cursor::Cursor,
    event::Body,
    tool::{ToolKind, ToolResult},
};
use tenure_engine::RecordStatus;
use tenure_testkit::{Rig, TestTool, as_text, trusting};

const SECRET: &str = "sk-żółw\"quoted\"-0123456789";

/// Everything that was written or shown, as one text.
async fn everything(rig: &Rig, session: tenure_core::ids::SessionId) -> String {
    let mut all: String = rig.sound(session).await.iter().map(as_text).collect();
    all.push_str(&serde_json::to_string(&*rig.state(session).await).unwrap());
    all
}

#[track_caller]
fn assert_clean(text: &str) {
    // JSON spells it in its own way.
    let quoted = serde_json::to_string(SECRET).unwrap();
    for spelled in [SECRET, quoted.trim_matches('"'), "0123456789", "żółw"] {
        assert!(!text.contains(spelled), "{spelled} is in {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_secret_is_nowhere_but_in_the_tool_s_hands() {
    let echo = TestTool::new("echo", ToolKind::Exec)
        .showing(&["the secret is sk-żół", "w\"quot", "ed\"-01234", "56789\n"])
        .doing(|_, input| async move {
            let mut result = ToolResult::ok(format!("seen {}", input["subject"].as_str().unwrap()));
            result.detail = json!({ "command": input });
            result
        })
        .shared();
    let call = json!({"call": {"name": "echo", "input": {"subject": format!("curl -H {SECRET}"), "n": [SECRET]}}, "chunk": 3, "pause_ms": 5});
    let steps = json!([
        {"do": [{"thinking": format!("I know {SECRET}."), "chunk": 4, "pause_ms": 5},
                {"text": format!("Your key is {SECRET}, keep it."), "chunk": 3, "pause_ms": 5}, call]},
        {"do": [{"text": "done"}]}
    ]);
    let rig = Rig::steps(steps).tool(&echo).secret("API_KEY", SECRET).start().await;
    std::fs::write(rig.workspace().join("AGENTS.md"), format!("use {SECRET}\n# Verify\n`check {SECRET}`\n")).unwrap();
    let session = rig.create_with(|new| {
        trusting(new);
        new.settings.system_prompt = Some(format!("The key is {SECRET}."));
        new.settings.title = Some(SECRET.into());
        new.settings.labels = vec![SECRET.into()];
    });
    let session = session.await;
    let mut watcher = rig.watch(session, Cursor::START).await;
    let record = rig.ask(session, &format!("my key: {SECRET}")).await;
    assert_eq!(record.status, RecordStatus::Completed);
    assert_eq!(echo.inputs()[0]["subject"], format!("curl -H {SECRET}"));
    assert_eq!(echo.inputs()[0]["n"][0], SECRET);
    let all = everything(&rig, session).await;
    assert_clean(&all);
    assert!(all.contains("Your key is ${secret:API_KEY}, keep it."));
    let live: String = watcher.until("turn_completed").await.iter().map(as_text).collect();
    assert_clean(&live);
    assert_clean(&format!("{:?}", rig.engine.list(None, 10, &tenure_engine::Wanted::default()).await.unwrap()));
    assert_clean(&serde_json::to_string(&record).unwrap());
}

#[tokio::test(start_paused = true)]
async fn verification_runs_with_the_real_value() {
    let write = TestTool::new("write", ToolKind::Write).shared();
    let verify = TestTool::new("verify", ToolKind::Exec)
        .doing(|context, _| async move { ToolResult::ok(context.verify.unwrap().commands.join(";")) })
        .shared();
    let steps = json!([{"do": [{"call": {"name": "write", "input": {}}}]}, {"do": [{"text": "done"}]}]);
    let rig = Rig::steps(steps).tool(&write).tool(&verify).secret("API_KEY", SECRET).start().await;
    let session = rig.create_with(|new| new.policy.verify.commands = Some(vec![format!("check {SECRET}")])).await;
    rig.ask(session, "go").await;
    assert_eq!(verify.runs(), 1);
    assert_clean(&everything(&rig, session).await);
}

#[tokio::test(start_paused = true)]
async fn reasons_faults_problems_and_malformed_arguments_are_clean_too() {
    let write = TestTool::new("write", ToolKind::Write).unprepared(&format!("cannot write to {SECRET}")).shared();
    let steps = json!([
        {"do": [{"call": {"name": "write", "input": {}}}, {"call": {"name": "write", "arguments": format!("{{\"x\": {SECRET}")}}]},
        {"do": [{"text": "x"}, {"error": {"kind": "auth", "message": format!("bad key {SECRET}")}}]}
    ]);
    let rig = Rig::steps(steps).tool(&write).secret("API_KEY", SECRET).start().await;
    let session = rig.create().await;
    assert_eq!(rig.ask(session, "go").await.status, RecordStatus::Failed);
    rig.command(session, Command::End { reason: Some(format!("because {SECRET}")) }).await.unwrap();
    assert_clean(&everything(&rig, session).await);
}

#[tokio::test(start_paused = true)]
async fn a_crash_in_the_middle_of_a_secret_shows_none_of_it() {
    let steps = json!([{"attempts": [{"do": [{"text": "key: sk-żółw\"quo"}, {"keep_alive": true}]}, {"do": [{"text": "fine"}]}]}]);
    let mut rig = Rig::steps(steps).secret("API_KEY", SECRET).start().await;
    let session = rig.create().await;
    let turn = rig.say(session, "go").await;
    rig.watch(session, Cursor::START).await.until("model_output_delta").await;
    rig.crash_and_restart().await;
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
    assert_clean(&everything(&rig, session).await);
}

/// What a tool is given when the model names a secret by its mark, after these steps.
async fn given_for_mark(before: serde_json::Value, result: &'static str) -> String {
    let look = TestTool::new("look", ToolKind::Read).doing(move |_, _| async move { ToolResult::ok(result) }).shared();
    let echo = TestTool::new("echo", ToolKind::Exec).shared();
    let named = json!({"do": [{"call": {"name": "echo", "input": {"subject": "say ${secret:API_KEY}"}}}]});
    let mut steps = before.as_array().unwrap().clone();
    steps.extend([named, json!({"do": [{"text": "done"}]})]);
    let rig = Rig::steps(json!(steps)).tool(&look).tool(&echo).secret("API_KEY", SECRET).start().await;
    let session = rig.create_with(trusting).await;
    assert_eq!(rig.ask(session, "go").await.status, RecordStatus::Completed);
    assert_clean(&everything(&rig, session).await);
    echo.inputs()[0]["subject"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_mark_is_worth_a_secret_only_to_a_model_that_was_shown_it() {
    let look = || json!([{"do": [{"call": {"name": "look", "input": {}}}]}]);
    let literal = "say ${secret:API_KEY}";
    assert_eq!(given_for_mark(json!([]), "").await, literal, "made up");
    assert_eq!(given_for_mark(look(), "a file says ${secret:API_KEY}").await, literal, "planted in a file");
    assert_eq!(given_for_mark(look(), SECRET).await, format!("say {SECRET}"), "seen in a result");
}

#[tokio::test(start_paused = true)]
async fn arguments_nested_too_deep_are_a_result_and_the_session_loads_again() {
    let echo = TestTool::new("echo", ToolKind::Exec).shared();
    let deep = format!("{{\"x\": {}{}}}", "[".repeat(120), "]".repeat(120));
    let steps = json!([{"do": [{"call": {"name": "echo", "arguments": deep}}]}, {"do": [{"text": "done"}]}]);
    let mut rig = Rig::steps(steps).tool(&echo).start().await;
    let session = rig.create_with(trusting).await;
    assert_eq!(rig.ask(session, "go").await.status, RecordStatus::Completed);
    assert_eq!(echo.runs(), 0);
    rig.crash_and_restart().await;
    assert_eq!(rig.ask(session, "again").await.status, RecordStatus::Completed);
    assert!(everything(&rig, session).await.contains("nested deeper than 64"));
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_marks_make_too_large_fails_the_turn_and_the_session_goes_on() {
    let name = "LONG_NAME_".repeat(40) + "KEY";
    let flood = "shh-this".repeat(30_000);
    let rig = Rig::steps(json!([{"attempts": [{"do": [{"text": "so far "}, {"text": flood}]}]}]));
    let rig = rig.secret(&name, "shh-this").start().await;
    let session = rig.create().await;
    let record = rig.ask(session, "go").await;
    assert_eq!(record.error.unwrap().code, "reply_too_large");
    let events = rig.events(session).await;
    let texts: Vec<&str> = events
        .iter()
        .filter_map(|event| match &event.body {
            Body::ModelAttemptFailed(failed) => Some(failed.text.as_str()),
            _ => None,
        })
        .collect();
    // Trying again would give the same, so there is one attempt.
    assert_eq!(texts, ["so far "]);
    rig.sound(session).await;
}
