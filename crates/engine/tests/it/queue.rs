//! Messages while a turn is under way: queued or steered, never lost.

use serde_json::json;
use tenure_core::{
    command::{Answer, Command},
    event::{Body, EventLost},
    ids::SessionId,
    message::{Delivery, Part, Role},
    session::QUEUE_MAX,
    tool::ToolKind,
};
use tenure_engine::{Error, RecordStatus};
use tenure_testkit::{Rig, RigSetup, TestTool, message};

/// The first reply waits at the gate, all others echo.
fn held() -> RigSetup {
    Rig::steps(json!([{"do": [{"text": "first"}, {"keep_alive": true}]}]))
}

#[tokio::test(start_paused = true)]
async fn a_queued_turn_starts_when_the_open_one_is_done() {
    let rig = held().start().await;
    let session = rig.create().await;
    let first = rig.say(session, "one").await;
    rig.model_gate().reached(1).await;
    let (second, third) = (rig.say(session, "two").await, rig.say(session, "three").await);
    assert_eq!(rig.engine.turn(session, third, None).await.unwrap().status, RecordStatus::Pending);
    rig.model_gate().open();
    for turn in [first, second, third] {
        assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
    }
    let started: Vec<_> =
        rig.events(session).await.into_iter().filter(|event| matches!(event.body, Body::TurnStarted(_))).collect();
    assert_eq!(started.iter().filter_map(|event| event.turn_id).collect::<Vec<_>>(), [first, second, third]);
    rig.sound(session).await;
}

/// No session of ours comes to this by itself; a log from elsewhere may.
#[tokio::test(start_paused = true)]
async fn a_turn_that_waits_behind_nothing_starts() {
    let rig = held().start().await;
    let session = rig.create().await;
    let (open, queued) = (rig.say(session, "one").await, rig.say(session, "two").await);
    let mut events = rig.events(session).await;
    for event in events.iter_mut().filter(|event| event.turn_id == Some(open)) {
        (event.turn_id, event.body) = (None, EventLost { reason: "gone".into() }.into());
    }
    let copy: SessionId = "sess_01JGFJJZ00041061050R3GG28A".parse().unwrap();
    events.iter_mut().for_each(|event| event.session_id = copy);
    let store = rig.store();
    let (epoch, _) = store.create(copy, &events[..1]).await.unwrap();
    store.append(copy, epoch, 1, &events[1..]).await.unwrap();
    rig.model_gate().open();
    assert_eq!(rig.settled(copy, queued).await.status, RecordStatus::Completed);
    assert_eq!(rig.settled(session, queued).await.status, RecordStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_steering_message_enters_the_next_request() {
    let look = TestTool::new("look", ToolKind::Read).gated().shared();
    let steps = json!([
        {"do": [{"call": {"name": "look", "input": {}}}]},
        {"cases": [{"seen": "mind the step", "do": [{"text": "I do."}]}]}
    ]);
    let rig = Rig::steps(steps).tool(&look).start().await;
    let session = rig.create().await;
    let turn = rig.say(session, "go").await;
    look.gate().reached(1).await;
    let steered = rig.command(session, message("mind the step", Delivery::Steer)).await.unwrap();
    assert!(matches!(steered, Answer::Message { turn_id: Some(id), .. } if id == turn));
    look.gate().open();
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
    let types = rig.types(session).await;
    let place = |kind| types.iter().position(|found| *found == kind).unwrap();
    assert!(place("tool_call_completed") < place("message_delivered"), "{types:?}");
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn a_steering_message_during_the_last_reply_gets_a_reply_of_its_own() {
    let steps = json!([
        {"do": [{"text": "all done"}, {"keep_alive": true}]},
        {"cases": [{"seen": "wait", "do": [{"text": "Yes?"}]}]}
    ]);
    let rig = Rig::steps(steps).start().await;
    let session = rig.create().await;
    let turn = rig.say(session, "go").await;
    rig.model_gate().reached(1).await;
    rig.command(session, message("wait", Delivery::Steer)).await.unwrap();
    rig.model_gate().open();
    assert_eq!(rig.settled(session, turn).await.response.unwrap().text, "Yes?");
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_that_waits_is_lost_when_the_turn_is_canceled_or_fails() {
    let steps = json!([
        {"cases": [{"seen": "steered", "do": [{"text": "I saw the steering word."}]},
                   {"seen": "fail", "do": [{"keep_alive": true}, {"error": {"kind": "auth", "message": "no"}}]},
                   {"do": [{"text": "half"}, {"keep_alive": true}]}]}
    ]);
    for how in ["cancel", "fail"] {
        let rig = Rig::steps(steps.clone()).start().await;
        let session = rig.create().await;
        let first = rig.say(session, how).await;
        rig.model_gate().reached(1).await;
        let next = rig.say(session, "and then").await;
        rig.command(session, message("steered", Delivery::Steer)).await.unwrap();
        if how == "cancel" {
            rig.cancel(session).await.unwrap();
        }
        rig.model_gate().open();
        rig.settled(session, first).await;
        let record = rig.settled(session, next).await;
        assert_eq!(record.response.unwrap().text, "I saw the steering word.", "{how}");
        rig.sound(session).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_steering_message_with_nothing_queued_waits_for_the_next_turn() {
    let rig = held().start().await;
    let session = rig.create().await;
    let first = rig.say(session, "one").await;
    rig.model_gate().reached(1).await;
    rig.command(session, message("remember me", Delivery::Steer)).await.unwrap();
    rig.cancel(session).await.unwrap();
    assert_eq!(rig.settled(session, first).await.status, RecordStatus::Cancelled);
    assert_eq!(rig.state(session).await.unsent.len(), 1);
    rig.model_gate().open();
    let Ok(Answer::Turn { turn_id }) = rig.command(session, Command::StartTurn).await else { panic!("no turn") };
    assert_eq!(rig.settled(session, turn_id).await.messages.len(), 1);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn the_queue_has_an_end() {
    let rig = held().start().await;
    let session = rig.create().await;
    rig.say(session, "open").await;
    rig.model_gate().reached(1).await;
    let mut queued = vec![];
    for number in 0..QUEUE_MAX {
        queued.push(rig.say(session, &format!("{number}")).await);
    }
    let full = rig.command(session, message("one too many", Delivery::Queue)).await;
    assert!(matches!(full, Err(Error::Refused(refusal)) if refusal.code == "queue_full"));
    let before = rig.types(session).await.len();
    // A queued turn can be canceled by itself, and makes room.
    rig.command(session, Command::Cancel { turn_id: Some(queued[7]), reason: None }).await.unwrap();
    assert_eq!(rig.types(session).await.len(), before + 1);
    rig.say(session, "fits again").await;
    rig.model_gate().open();
    rig.until(session, "all are done", |state| state.turn.is_none() && state.queue.is_empty()).await;
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn appended_messages_wait_for_a_turn() {
    let rig = Rig::steps(json!([])).start().await;
    let session = rig.create_with(|new| new.settings.auto_run = false).await;
    let append = |text: &str| message(text, Delivery::Queue);
    for text in ["one", "two"] {
        let answer = rig.command(session, append(text)).await.unwrap();
        assert!(matches!(answer, Answer::Message { turn_id: None, .. }));
    }
    let run = Command::SendMessage {
        role: Role::User,
        parts: vec![Part::text("three")],
        delivery: Delivery::Queue,
        auto_run: Some(true),
    };
    let Ok(Answer::Message { turn_id: Some(turn), .. }) = rig.command(session, run).await else { panic!("no turn") };
    assert_eq!(rig.settled(session, turn).await.messages.len(), 3);
    rig.sound(session).await;
}
