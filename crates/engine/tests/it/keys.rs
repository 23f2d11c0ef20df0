//! The same idempotency key makes one message, one turn, one session.

use serde_json::json;
use tenure_core::{command::Command, message::Delivery, session::KEY_KEPT_MS};
use tenure_engine::Error;
use tenure_store::{Fault, FaultyStore, Point};
use tenure_testkit::{Rig, message, user};

fn code(error: Error) -> &'static str {
    match error {
        Error::Refused(refusal) => refusal.code,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn one_message_whether_twice_at_once_or_after_a_restart() {
    let mut rig = Rig::steps(json!([{"do": [{"text": "a"}]}])).start().await;
    let session = rig.create().await;
    let said = || message("hi", Delivery::Queue);
    let (first, second) = tokio::join!(rig.keyed(session, "k", said()), rig.keyed(session, "k", said()));
    let first = first.unwrap();
    assert_eq!(first, second.unwrap());
    rig.until(session, "the turn is over", |state| state.turn.is_none()).await;
    assert_eq!(rig.keyed(session, "k", said()).await.unwrap(), first);
    rig.crash_and_restart().await;
    assert_eq!(rig.keyed(session, "k", said()).await.unwrap(), first);
    assert_eq!(code(rig.keyed(session, "k", message("other", Delivery::Queue)).await.unwrap_err()), "key_reused");
    let types = rig.types(session).await;
    let count = |kind| types.iter().filter(|found| **found == kind).count();
    assert_eq!((count("message_added"), count("turn_started")), (1, 1));
    // Another endpoint has its own keys.
    rig.keyed(session, "k", Command::End { reason: None }).await.unwrap();
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_not_kept() {
    let rig = Rig::steps(json!([{"do": [{"text": "a"}]}])).start().await;
    let session = rig.create().await;
    let start = || Command::StartTurn;
    assert_eq!(code(rig.keyed(session, "k", start()).await.unwrap_err()), "nothing_to_send");
    let append = Command::SendMessage {
        role: tenure_core::message::Role::User,
        parts: vec![tenure_core::message::Part::text("x")],
        delivery: Delivery::Queue,
        auto_run: Some(false),
    };
    rig.command(session, append).await.unwrap();
    rig.keyed(session, "k", start()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_key_is_forgotten_after_a_day() {
    let rig = Rig::script(json!({"steps": [{"do": [{"text": "a"}]}], "after": "repeat"})).start().await;
    let session = rig.create().await;
    let first = rig.keyed(session, "k", message("hi", Delivery::Queue)).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(KEY_KEPT_MS + 1000)).await;
    let later = rig.keyed(session, "k", message("hi", Delivery::Queue)).await.unwrap();
    assert_ne!(first, later);
}

#[tokio::test(start_paused = true)]
async fn one_session_whether_made_twice_at_once_or_after_a_restart() {
    let mut rig = Rig::steps(json!([])).start().await;
    let make = || rig.engine.create(rig.new_session(), Some("k".into()), user());
    let (first, second) = tokio::join!(make(), make());
    let first = first.unwrap();
    assert_eq!(first, second.unwrap());
    assert_eq!(make().await.unwrap(), first);
    let mut other = rig.new_session();
    other.settings.title = Some("another".into());
    assert_eq!(code(rig.engine.create(other, Some("k".into()), user()).await.unwrap_err()), "key_reused");
    let without = rig.engine.create(rig.new_session(), None, user()).await.unwrap();
    assert_ne!(without, first);
    rig.crash_and_restart().await;
    assert_eq!(rig.engine.create(rig.new_session(), Some("k".into()), user()).await.unwrap(), first);
    assert_eq!(rig.engine.list(None, 10, &tenure_engine::Wanted::default()).await.unwrap().rows.len(), 2);
    assert_eq!(rig.types(first).await, ["session_created"]);
    rig.ask(first, "it works").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_clients_at_the_same_moment_make_one_of_each() {
    let rig = std::sync::Arc::new(Rig::steps(json!([{"do": [{"text": "a"}]}])).start().await);
    let ask = |key: String| {
        let rig = rig.clone();
        tokio::spawn(async move {
            let session = rig.engine.create(rig.new_session(), Some(key.clone()), user()).await.unwrap();
            let answer = rig.keyed(session, &key, message("hi", Delivery::Queue)).await.unwrap();
            (session, answer)
        })
    };
    for round in 0..20 {
        let asked: Vec<_> = (0..16).map(|_| ask(format!("k{round}"))).collect();
        let mut answers = vec![];
        for asked in asked {
            answers.push(tokio::time::timeout(std::time::Duration::from_secs(60), asked).await.unwrap().unwrap());
        }
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
        let types = rig.types(answers[0].0).await;
        assert_eq!(types.iter().filter(|kind| **kind == "message_added").count(), 1);
    }
}

/// Between a key and its session a disk may refuse, or a crash may come: then it is not made yet, which is not lost.
#[tokio::test]
async fn a_key_that_made_nothing_yet_makes_it_later() {
    let store = FaultyStore::new();
    let mut rig = Rig::steps(json!([])).store(store.clone()).start().await;
    for restarts in [false, true] {
        let key = Some(format!("k{restarts}"));
        store.plan(Fault::next(Point::LogWrite));
        let refused = rig.engine.create(rig.new_session(), key.clone(), user()).await;
        assert!(matches!(refused, Err(Error::Store(_))), "{refused:?}");
        if restarts {
            rig.crash_and_restart().await;
        }
        let made = rig.engine.create(rig.new_session(), key.clone(), user()).await.unwrap();
        assert_eq!(rig.engine.create(rig.new_session(), key, user()).await.unwrap(), made);
    }
}
