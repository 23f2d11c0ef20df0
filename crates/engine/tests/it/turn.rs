//! A turn from its message to its end: which events, which deltas, which record.

use serde_json::json;
use tenure_core::{event::Body, tool::ToolKind};
use tenure_engine::RecordStatus;
use tenure_testkit::{Rig, TestTool, as_json};

#[tokio::test(start_paused = true)]
async fn a_plain_turn_has_exactly_these_events() {
    let rig =
        Rig::steps(json!([{"do": [{"text": "Hello there, żółw 🐢!", "chunk": 3, "pause_ms": 10}]}])).start().await;
    let session = rig.create().await;
    let record = rig.ask(session, "hi").await;
    assert_eq!(record.status, RecordStatus::Completed);
    assert_eq!(record.response.map(|response| response.text), Some("Hello there, żółw 🐢!".into()));
    assert_eq!(record.cost_micro_usd, Some(0));
    let expected = ["session_created", "message_added", "turn_started", "model_output_completed", "turn_completed"];
    assert_eq!(rig.types(session).await, expected);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn the_deltas_of_the_named_attempt_are_its_text_and_tell_their_place() {
    let text = "one two three four";
    let rig = Rig::steps(json!([{"do": [{"text": text, "chunk": 4, "pause_ms": 10}]}])).start().await;
    let session = rig.create().await;
    rig.ask(session, "hi").await;
    let mut joined = String::new();
    for item in rig.sound(session).await.iter().filter(|item| item.wire_type == "model_output_delta") {
        let delta = as_json(item);
        assert_eq!((delta["data"]["step"].as_u64(), delta["data"]["attempt"].as_u64()), (Some(1), Some(1)));
        assert_eq!(delta["data"]["offset"].as_u64(), Some(joined.len() as u64));
        assert_eq!(item.cursor.to_string(), format!("{}.{}", delta["seq"], delta["pos"]));
        joined.push_str(delta["data"]["text"].as_str().unwrap());
    }
    assert_eq!(joined, text);
}

/// The record of a settled turn tells its deltas from others, whatever was streamed.
#[tokio::test(start_paused = true)]
async fn the_record_of_a_settled_turn_has_the_sum_of_its_deltas() {
    let tool = TestTool::new("look", ToolKind::Read).showing(&["a", "b"]).shared();
    let steps = json!([
        {"do": [{"text": "Looking."}, {"call": {"name": "look", "input": {"path": "x"}}, "chunk": 4, "pause_ms": 1}]},
        {"do": [{"text": "Seen, and told.", "chunk": 3}]},
        {"do": [{"error": {"kind": "auth", "message": "no"}}]}
    ]);
    let rig = Rig::steps(steps).tool(&tool).start().await;
    let session = rig.create().await;
    for has_deltas in [true, false] {
        let turn = rig.ask(session, "hi").await.id;
        let kept = loop {
            let kept = rig.store().turn_get(session, turn).await.unwrap().unwrap();
            let kept: serde_json::Value = serde_json::from_slice(&kept).unwrap();
            if kept["status"] != "running" {
                break kept;
            }
            tokio::task::yield_now().await;
        };
        let sum = rig.store().spool_close(session, turn).await.unwrap();
        assert_eq!(sum.is_some(), has_deltas, "{kept}");
        assert_eq!(kept.get("spool"), sum.map(|sum| json!(sum)).as_ref(), "{kept}");
    }
}

#[tokio::test(start_paused = true)]
async fn tools_thinking_and_arguments_are_part_of_the_stream() {
    let tool = TestTool::new("look", ToolKind::Read).showing(&["a", "b"]).shared();
    let steps = json!([
        {"do": [{"thinking": "hm", "signature": "s"}, {"text": "Looking."},
                {"call": {"name": "look", "input": {"path": "x"}}, "chunk": 4, "pause_ms": 1}]},
        {"do": [{"text": "Seen."}]}
    ]);
    let rig = Rig::steps(steps).tool(&tool).start().await;
    let session = rig.create().await;
    rig.ask(session, "hi").await;
    let items = rig.sound(session).await;
    for kind in ["model_thinking_delta", "model_output_delta", "tool_arguments_delta", "tool_output_delta"] {
        assert!(items.iter().any(|item| item.wire_type == kind), "{kind}");
    }
    let expected = [
        "session_created",
        "message_added",
        "turn_started",
        "model_output_completed",
        "tool_call_started",
        "tool_call_completed",
        "model_output_completed",
        "turn_completed",
    ];
    assert_eq!(rig.types(session).await, expected);
    let events = rig.events(session).await;
    let Body::ModelOutputCompleted(first) = &events[3].body else { panic!("{:?}", events[3]) };
    assert_eq!((first.thinking[0].text.as_str(), first.thinking[0].signature.as_deref()), ("hm", Some("s")));
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_a_call_is_told_to_the_model() {
    let steps = json!([
        {"do": [{"call": {"name": "nosuch", "input": {}}}, {"call": {"name": "look", "arguments": "{\"a\":"}}]},
        {"cases": [{"seen": "no tool named nosuch", "do": [{"text": "I see."}]}]}
    ]);
    let tool = TestTool::new("look", ToolKind::Read).shared();
    let rig = Rig::steps(steps).tool(&tool).start().await;
    let session = rig.create().await;
    assert_eq!(rig.ask(session, "hi").await.status, RecordStatus::Completed);
    assert_eq!(tool.runs(), 0);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_session_is_in_the_listing_and_its_turns_have_records() {
    let rig = Rig::steps(json!([{"do": [{"text": "a"}]}, {"do": [{"text": "b"}]}])).start().await;
    let session = rig.create_with(|new| new.settings.title = Some("mine".into())).await;
    let rows = rig.engine.list(None, 10, &tenure_engine::Wanted::default()).await.unwrap().rows;
    assert_eq!(rows.iter().map(|row| (row.id, row.title.as_deref())).collect::<Vec<_>>(), [(session, Some("mine"))]);
    let (first, second) = (rig.ask(session, "1").await, rig.ask(session, "2").await);
    for (record, text) in [(&first, "a"), (&second, "b")] {
        let again = rig.engine.turn(session, record.id, None).await.unwrap();
        assert_eq!(again, *record);
        assert_eq!(record.response.as_ref().unwrap().text, text);
    }
    let unknown =
        rig.engine.turn(session, serde_json::from_value(json!("turn_00000000000000000000000000")).unwrap(), None);
    assert!(unknown.await.is_err());
}

#[tokio::test(start_paused = true)]
async fn the_offsets_of_a_turn_begin_anew_after_one_that_failed() {
    let steps = json!([
        {"cases": [{"seen": "second", "do": [{"text": "All is well."}]},
                   {"do": [{"text": "Half a sen"}, {"error": {"kind": "auth", "message": "no"}}]}]}
    ]);
    let rig = Rig::steps(steps).start().await;
    let session = rig.create().await;
    assert_eq!(rig.ask(session, "first").await.status, RecordStatus::Failed);
    assert_eq!(rig.ask(session, "second").await.status, RecordStatus::Completed);
    rig.sound(session).await;
}
