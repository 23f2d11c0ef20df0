//! Scripts that went wrong: a problem that names its place, or a script that plays to an end.

use std::time::Duration;

use futures::StreamExt;
use tenure_core::{message::Part, model::Usage};
use tenure_fuzzkit::target;
use tenure_models::{
    Model, ModelEvent,
    scripted::{ScriptedModel, parse},
};

use crate::request::{request, tool_result, user};

/// Time stands still unless nobody works, so this is no real time.
const LONG: Duration = Duration::from_secs(3600);
/// A script may ask for more pieces than anybody wants to see.
const EVENTS_MAX: usize = 2000;

#[test]
fn script() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    target!("script").cases(600).run(|input| {
        let text = String::from_utf8_lossy(input);
        match parse(&text) {
            Err(problem) => assert!(!problem.to_string().is_empty()),
            Ok(script) => runtime.block_on(plays(&ScriptedModel::new("fuzzed", script))),
        }
    });
}

async fn plays(model: &ScriptedModel) {
    for messages in [vec![], vec![user("x")], vec![user("a"), tool_result("x"), user("b")]] {
        let (once, twice) = (played(model, messages.clone()).await, played(model, messages).await);
        assert_eq!(once, twice, "the same request is played in two ways");
    }
    for tokens in [0, 1, 1_000_000, u64::MAX] {
        let usage = Usage { input_tokens: tokens, output_tokens: tokens, ..Usage::default() };
        let _ = model.cost(&usage);
    }
    let _ = (model.patience(), model.takes(&Part::text("words")));
}

/// All that comes before the end, or before nothing comes any more.
async fn played(model: &ScriptedModel, messages: Vec<tenure_core::context::ChatMessage>) -> Vec<String> {
    let Ok(stream) = model.stream(request(messages)).await else { return vec!["refused".into()] };
    let mut stream = stream.take(EVENTS_MAX);
    let mut all = vec![];
    while let Ok(Some(event)) = tokio::time::timeout(LONG, stream.next()).await {
        let done = matches!(event, Ok(ModelEvent::Done { .. }) | Err(_));
        all.push(format!("{event:?}"));
        if done {
            break;
        }
    }
    all
}
