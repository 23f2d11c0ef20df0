//! A long conversation is found again in the vendor's cache: each request begins with the bytes of the one before.

use bytes::Bytes;
use serde_json::json;
use tenure_core::{
    command::{Answer as Answered, Command},
    ids::SessionId,
    message::{Delivery, Part, Role},
    model::{StopReason, Usage},
    tool::ToolKind,
};
use tenure_engine::{NewFile, RecordStatus, TurnRecord};
use tenure_models::{
    catalog::ModelConfig,
    entry::{Effort, PartKind, ThinkingStyle, ToolMode},
};
use tenure_testkit::{
    Rig, TestTool, trusting, user,
    vendor::{Answer, FakeVendor, Format, Speech, Spoken},
};

use super::rig;

const ROUNDS: usize = 3;

/// What the next request has to begin with: the list goes on where this one closes it.
fn stem(body: &[u8]) -> &[u8] {
    let end = body.iter().rposition(|byte| !matches!(byte, b']' | b'}' | b'"')).map_or(0, |at| at + 1);
    &body[..end]
}

fn thought(round: usize) -> Spoken {
    Spoken::Thought(vec![format!("What of {round}, "), "then?".into()], Some(format!("sig+/={round}")))
}

/// A thought, some words, and two calls side by side.
fn asks(round: usize) -> Speech {
    let call = |id: &str| {
        let arguments = json!({ "subject": format!("{id} {round}") }).to_string();
        (format!("call_{id}_{round}"), "look".to_owned(), vec![arguments])
    };
    Speech {
        spoken: vec![
            thought(round),
            Spoken::Text(vec![format!("I look at {round}.")]),
            Spoken::Calls(vec![call("a"), call("b")]),
        ],
        stop: StopReason::ToolUse,
        usage: Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() },
    }
}

fn tells(round: usize) -> Speech {
    let text = Spoken::Text(vec![format!("Seen \"{round}\".")]);
    Speech { spoken: vec![thought(round + 10), text], ..Speech::text("") }
}

/// Sends words with a picture and a text file, and waits for the end of the turn.
async fn ask(rig: &Rig, session: SessionId, round: usize) -> TurnRecord {
    let mut parts = vec![Part::text(format!("look at {round}, \"please\""))];
    for (name, mime_type) in [("picture.png", "image/png"), ("notes.txt", "text/plain")] {
        let bytes = Bytes::from(format!("{name} of round {round}"));
        let file = NewFile { name: format!("{round}-{name}"), mime_type: mime_type.into(), bytes };
        let Ok(Answered::Attached { attachment }) = rig.engine.attach(session, file, None, user()).await else {
            panic!("{name} is not taken");
        };
        let (r#ref, mime_type) = (attachment.r#ref, attachment.mime_type);
        parts.push(match mime_type.starts_with("image/") {
            true => Part::Image { r#ref, mime_type },
            false => Part::File { r#ref, mime_type },
        });
    }
    let command = Command::SendMessage { role: Role::User, parts, delivery: Delivery::Queue, auto_run: None };
    let Ok(Answered::Message { turn_id: Some(turn), .. }) = rig.command(session, command).await else {
        panic!("the message is not taken");
    };
    rig.settled(session, turn).await
}

fn action(name: &str, field: &str, value: serde_json::Value) -> Speech {
    Speech::text(&json!({ "action": name, field: value }).to_string())
}

/// The replies of a round: a step with calls, and one with words.
fn replies(tool_mode: ToolMode, round: usize) -> [Speech; 2] {
    match tool_mode {
        ToolMode::Native => [asks(round), tells(round)],
        ToolMode::Schema => [
            action("look", "input", json!({ "subject": round })),
            action("answer", "text", json!(format!("Seen \"{round}\"."))),
        ],
    }
}

#[tokio::test]
async fn a_request_begins_with_the_bytes_of_the_one_before_it() {
    let native = Format::ALL.map(|format| (format, ToolMode::Native));
    for (format, tool_mode) in native.into_iter().chain([(Format::Chat, ToolMode::Schema)]) {
        let how = format!("{format:?} {tool_mode:?}");
        let vendor = FakeVendor::start().await;
        let look = TestTool::new("look", ToolKind::Read).shared();
        let thinking = if format == Format::Anthropic { ThinkingStyle::Adaptive } else { ThinkingStyle::Effort };
        let model = ModelConfig {
            window: Some(1_000_000),
            tool_mode: Some(tool_mode),
            takes: Some(vec![PartKind::Image, PartKind::File]),
            thinking: Some(thinking),
            effort: Some(Effort::High),
            sends_reasoning: Some(true),
            ..ModelConfig::default()
        };
        let mut rig = rig(&vendor, format, model).tool(&look).start().await;
        std::fs::write(rig.workspace().join("AGENTS.md"), "be kind").unwrap();
        let session = rig.create_with(|new| {
            trusting(new);
            new.settings.system_prompt = Some("You help.".into());
        });
        let session = session.await;
        for round in 0..ROUNDS {
            for speech in replies(tool_mode, round) {
                vendor.plan(Answer::events(speech.events(format)));
            }
            let record = ask(&rig, session, round).await;
            assert_eq!(record.status, RecordStatus::Completed, "{how}: {:?}", record.error);
            rig.crash_and_restart().await;
        }
        let asked = vendor.asked();
        assert_eq!(asked.len(), 2 * ROUNDS, "{how}");
        for (number, pair) in asked.windows(2).enumerate() {
            let (one, two) = (stem(&pair[0].body), &pair[1].body);
            assert!(
                two.starts_with(one),
                "{how} {number}:\n{}\n{}",
                String::from_utf8_lossy(one),
                String::from_utf8_lossy(two)
            );
        }
        let last = String::from_utf8_lossy(&asked[2 * ROUNDS - 1].body);
        // All of it is in there: the first picture, notes, words, calls and thoughts.
        for mark in ["cGljdHVyZS5wbmcgb2Ygcm91bmQgMA", "notes.txt of round 0", "look at 0"] {
            assert!(last.contains(mark), "{how}: {mark} is missing in {last}");
        }
        let thought = match (format, tool_mode) {
            (_, ToolMode::Schema) => continue,
            (Format::Chat, _) => "What of 0, then?",
            _ => "sig+/=0",
        };
        assert!(last.contains(thought) && last.contains("a 0"), "{how}: {last}");
    }
}
