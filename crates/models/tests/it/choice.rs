//! Which step is played: decided by the request alone.

use tenure_core::{
    context::ChatMessage,
    model::{Fault, FaultKind},
};
use tenure_models::Model;

use crate::request::{assistant, model, play, request, said, tool_result, user};

const TWO_STEPS: &str = r#""steps": [{"do": [{"text": "first"}]}, {"do": [{"text": "second"}]}]"#;

async fn check(script: &str, messages: Vec<ChatMessage>, expected: &str) {
    assert_eq!(said(&model(script), request(messages)).await, expected, "{script}");
}

#[tokio::test]
async fn replies_in_the_request_are_counted() {
    let script = format!("{{{TWO_STEPS}}}");
    check(&script, vec![user("go")], "first").await;
    check(&script, vec![user("go"), user("and this")], "first").await;
    check(&script, vec![user("go"), assistant("first"), tool_result("x")], "second").await;
    // A model without memory answers the same request the same way again.
    check(&script, vec![user("go")], "first").await;
}

#[tokio::test(start_paused = true)]
async fn after_the_last_step() {
    let over = || vec![user("one"), assistant("first"), assistant("second"), user("two")];
    let unnamed = said(&model(&format!("{{{TWO_STEPS}}}")), request(over())).await;
    assert!(unnamed.starts_with("I am the scripted stand-in of Tenure"), "{unnamed}");
    check(
        &format!(r#"{{"name": "pair", {TWO_STEPS}, "after": "echo"}}"#),
        over(),
        "The script “pair” has nothing more to say; it has no intelligence of its own. You wrote: “two”",
    )
    .await;
    check(&format!(r#"{{{TWO_STEPS}, "after": "repeat"}}"#), over(), "first").await;
    check(&format!(r#"{{{TWO_STEPS}, "after": "stop"}}"#), over(), "").await;
}

#[tokio::test]
async fn attempts_are_counted_from_one_and_the_last_entry_stays() {
    let script = model(
        r#"{"steps": [{"attempts": [{"do": [{"text": "1"}]}, {"do": [{"text": "2"}]}, {"do": [{"text": "more"}]}]}]}"#,
    );
    for (attempt, expected) in [(0, "1"), (1, "1"), (2, "2"), (3, "more"), (9, "more")] {
        let mut asked = request(vec![user("go")]);
        asked.meta.attempt = attempt;
        assert_eq!(said(&script, asked).await, expected, "attempt {attempt}");
    }
}

#[tokio::test]
async fn cases_look_at_what_came_after_the_last_reply() {
    let script = r#"{"steps": [{"do": []}, {"cases": [
        {"seen": "failed", "do": [{"text": "mend"}]},
        {"seen": "steer", "do": [{"text": "turn"}]},
        {"do": [{"text": "go on"}]}]}]}"#;
    check(script, vec![user("go"), assistant(""), tool_result("ok"), tool_result("it failed")], "mend").await;
    check(script, vec![user("go"), assistant(""), tool_result("ok"), user("steer left")], "turn").await;
    check(script, vec![user("go"), assistant(""), user("steer"), tool_result("failed")], "mend").await;
    check(script, vec![user("it failed"), assistant("failed"), tool_result("ok")], "go on").await;
}

#[tokio::test]
async fn no_fitting_case_is_a_fault_that_names_the_step() {
    let script = model(r#"{"steps": [{"cases": [{"seen": "never", "do": []}]}]}"#);
    let fault = script.stream(request(vec![user("go")])).await.err();
    let message = "script test: step 1: no case fits what was seen";
    assert_eq!(fault, Some(Fault::new(FaultKind::BadRequest, message)));
}

#[tokio::test]
async fn calls_of_different_steps_have_different_vendor_names() {
    let script = model(r#"{"steps": [{"do": [{"call": {"name": "x", "input": {}}}]}], "after": "repeat"}"#);
    let first = play(&script, request(vec![user("go")])).await;
    let second = play(&script, request(vec![user("go"), assistant(""), tool_result("")])).await;
    assert_ne!(first[0], second[0]);
}
