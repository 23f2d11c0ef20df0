//! A long conversation is found again in the vendor's cache: each request begins with the bytes of the one before.

use serde_json::json;
use tenure_core::tool::ToolKind;
use tenure_engine::RecordStatus;
use tenure_models::catalog::ModelConfig;
use tenure_testkit::{
    TestTool, trusting,
    vendor::{Answer, FakeVendor, Format, Speech},
};

use super::{rig, says};

/// What the next request has to begin with: the list goes on where this one closes it.
fn stem(body: &[u8]) -> &[u8] {
    let end = body.iter().rposition(|byte| !matches!(byte, b']' | b'}' | b'"')).map_or(0, |at| at + 1);
    &body[..end]
}

#[tokio::test]
async fn a_request_begins_with_the_bytes_of_the_one_before_it() {
    for format in Format::ALL {
        let vendor = FakeVendor::start().await;
        let look = TestTool::new("look", ToolKind::Read).shared();
        let model = ModelConfig { window: Some(1_000_000), ..ModelConfig::default() };
        let mut rig = rig(&vendor, format, model).tool(&look).start().await;
        std::fs::write(rig.workspace().join("AGENTS.md"), "be kind").unwrap();
        let session = rig.create_with(|new| {
            trusting(new);
            new.settings.system_prompt = Some("You help.".into());
        });
        let session = session.await;
        for round in 0..3 {
            vendor.plan(Answer::events(
                Speech::call(&format!("call_{round}"), "look", &json!({ "subject": round })).events(format),
            ));
            vendor.plan(says(format, &format!("Seen \"{round}\".")));
            let record = rig.ask(session, &format!("look at {round}, \"please\"")).await;
            assert_eq!(record.status, RecordStatus::Completed, "{format:?}: {:?}", record.error);
            rig.crash_and_restart().await;
        }
        let asked = vendor.asked();
        assert_eq!(asked.len(), 6);
        for (number, pair) in asked.windows(2).enumerate() {
            let (one, two) = (stem(&pair[0].body), &pair[1].body);
            assert!(
                two.starts_with(one),
                "{format:?} {number}:\n{}\n{}",
                String::from_utf8_lossy(one),
                String::from_utf8_lossy(two)
            );
        }
    }
}
