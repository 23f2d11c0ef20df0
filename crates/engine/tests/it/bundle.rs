//! The workspace in brief: what is recorded is what the model was sent, once, and the same after a restart.

use serde_json::{Value, json};
use tenure_core::{
    command::{Command, Update},
    context::Transcript,
    event::{Body, ContextSeeded},
    ids::SessionId,
};
use tenure_testkit::Rig;

const SOURCE: &str = "class Invoice:\n    def with_tax(self):\n        return 1\n";

fn put(rig: &Rig, path: &str, text: &str) {
    let path = rig.workspace().join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

async fn seeds(rig: &Rig, session: SessionId) -> Vec<ContextSeeded> {
    let events = rig.events(session).await;
    events
        .into_iter()
        .filter_map(|event| if let Body::ContextSeeded(seeded) = event.body { Some(*seeded) } else { None })
        .collect()
}

/// What the model is sent, from the log alone.
async fn shown(rig: &Rig, session: SessionId) -> Vec<String> {
    let mut transcript = Transcript::default();
    rig.events(session).await.iter().for_each(|event| transcript.push(event));
    transcript.messages().map(|message| format!("{message:?}")).collect()
}

#[tokio::test(start_paused = true)]
async fn it_is_gathered_once_and_stands_before_the_first_message() {
    let mut rig = Rig::steps(json!([])).start().await;
    put(&rig, "billing/models.py", SOURCE);
    put(&rig, "AGENTS.md", "Be brief.\n");
    let session = rig.create().await;
    rig.ask(session, "The tax of an invoice is wrong").await;
    let recorded = seeds(&rig, session).await;
    assert_eq!(recorded.len(), 1);
    let bundle = recorded[0].bundle.clone().unwrap();
    assert_eq!(bundle.map.as_deref(), Some("billing/models.py:\n  1: class Invoice\n    2: def with_tax(self)\n"));
    assert_eq!((bundle.chunks[0].path.as_str(), bundle.chunks[0].text.as_str()), ("billing/models.py", SOURCE));
    assert_eq!((bundle.git, bundle.left_out), (None, vec![]));
    let first = shown(&rig, session).await;
    assert!(first[0].contains("class Invoice") && first[1].contains("The tax of an invoice"), "{first:?}");
    // Changed sources, another turn and another life leave the beginning as it was.
    put(&rig, "billing/other.py", "def other(): pass\n");
    rig.crash_and_restart().await;
    rig.ask(session, "And now?").await;
    assert_eq!(seeds(&rig, session).await, recorded);
    let second = shown(&rig, session).await;
    assert_eq!(second[..first.len()], first[..]);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn another_workspace_is_told_of_anew_and_at_the_end() {
    let rig = Rig::steps(json!([])).start().await;
    put(&rig, "a.py", SOURCE);
    put(&rig, "part/b.py", "def elsewhere():\n    pass\n");
    let session = rig.create().await;
    rig.ask(session, "hello").await;
    let first = shown(&rig, session).await;
    let path = rig.workspace().join("part").to_str().unwrap().to_owned();
    let update = Update { workspace_path: Some(path), ..Update::default() };
    rig.command(session, Command::Update(Box::new(update))).await.unwrap();
    rig.ask(session, "and here?").await;
    let second = shown(&rig, session).await;
    assert_eq!(second[..first.len()], first[..]);
    assert!(second[first.len()].contains("elsewhere") && second[first.len() + 1].contains("and here?"), "{second:?}");
    assert_eq!(seeds(&rig, session).await.len(), 2);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn where_there_is_nothing_to_tell_nothing_is_recorded() {
    let rig = Rig::steps(json!([])).start().await;
    put(&rig, "notes.txt", "no source\n");
    put(&rig, ".env", "KEY=1\n");
    let session = rig.create().await;
    rig.ask(session, "hello").await;
    assert_eq!(seeds(&rig, session).await, []);
    // What comes later is found with the tools.
    put(&rig, "a.py", SOURCE);
    rig.ask(session, "again").await;
    assert_eq!(seeds(&rig, session).await, []);
}

#[tokio::test(start_paused = true)]
async fn parts_can_be_switched_off() {
    let rig = Rig::steps(json!([])).start().await;
    put(&rig, "billing.py", SOURCE);
    let with = |preferences: Value| rig.create_with(move |new| new.settings.preferences = preferences.clone());
    let session = with(json!({ "context": false })).await;
    rig.ask(session, "the invoice").await;
    assert_eq!(seeds(&rig, session).await, []);
    let session = with(json!({ "context": { "map_tokens": 0 } })).await;
    rig.ask(session, "the invoice").await;
    let bundle = seeds(&rig, session).await.remove(0).bundle.unwrap();
    assert_eq!((bundle.map, bundle.chunks.len()), (None, 1));
}

#[tokio::test(start_paused = true)]
async fn secrets_are_redacted_and_files_of_secrets_not_chosen() {
    let rig = Rig::steps(json!([])).secret("API", "hunter2-hunter2").start().await;
    put(&rig, "invoice.py", "def invoice_key():\n    return \"hunter2-hunter2\"\n");
    put(&rig, "secrets.py", "def invoice_secret():\n    return \"other\"\n");
    let session = rig.create().await;
    rig.ask(session, "the invoice secret key").await;
    let bundle = seeds(&rig, session).await.remove(0).bundle.unwrap();
    assert_eq!(bundle.chunks.iter().map(|chunk| chunk.path.as_str()).collect::<Vec<_>>(), ["invoice.py"]);
    assert!(bundle.chunks[0].text.contains("${secret:API}"), "{bundle:?}");
    assert!(!bundle.map.unwrap().contains("secrets.py"));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_ready_in_time_is_left_out_and_said() {
    let rig = Rig::steps(json!([])).config(|config| config.bundle.wait_ms = 0).start().await;
    put(&rig, "billing.py", SOURCE);
    let session = rig.create().await;
    rig.ask(session, "the invoice").await;
    let bundle = seeds(&rig, session).await.remove(0).bundle.unwrap();
    let said = "a map of the sources was not ready within 0 ms; the tool repo_map makes one";
    assert_eq!((bundle.map, bundle.left_out), (None, vec![said.to_owned()]));
    assert!(shown(&rig, session).await[0].contains(said));
    rig.sound(session).await;
}
