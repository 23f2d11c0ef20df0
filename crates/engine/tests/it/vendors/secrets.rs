//! Keys of vendors are nowhere: no file, event, log line or error holds one, also where the vendor says it back.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::json;
use tenure_core::{command::Command, tool::ToolKind};
use tenure_engine::RecordStatus;
use tenure_models::catalog::{Catalog, CatalogConfig, ProviderConfig};
use tenure_store::FileStore;
use tenure_testkit::{
    Rig, TestTool, trusting,
    vendor::{Answer, FakeVendor, Format, Speech},
};
use tracing::{Event, Metadata, Subscriber, field::Visit, span};

use super::says;

const BY_VARIABLE: &str = "sk-variable-0123456789abcdef";
const BY_CONFIG: &str = "sk-config-fedcba9876543210";
const HEADER: &str = "Basic c2VjcmV0LWhlYWRlcg==";
const ALL: [&str; 3] = [BY_VARIABLE, BY_CONFIG, HEADER];

/// All that the daemon says to its own log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<String>>);

impl Lines {
    fn add(&self, what: &dyn Fn(&mut dyn Visit)) {
        struct Words(String);
        impl Visit for Words {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                let _ = writeln!(self.0, "{field}={value:?}");
            }
        }
        let mut words = Words(String::new());
        what(&mut words);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_str(&words.0);
    }
}

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        self.add(&|words| span.record(words));
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        self.add(&|words| values.record(words));
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        self.add(&|words| event.record(words));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

fn files_below(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => files_below(&path, found),
            false => found.push((path.display().to_string(), std::fs::read(&path).unwrap_or_default())),
        }
    }
}

#[track_caller]
fn assert_clean(what: &str, bytes: &[u8]) {
    for key in ALL {
        let found = bytes.windows(key.len()).any(|window| window == key.as_bytes());
        assert!(!found, "{key} is in {what}");
    }
}

/// A vendor that says back whatever it was let in by: in text, in thoughts, in calls and in refusals.
async fn chatty(format: Format) -> FakeVendor {
    FakeVendor::with(move |asked, number| {
        let heard = asked.headers.iter().filter(|(_, value)| ALL.iter().any(|key| value.contains(key)));
        let heard: Vec<&str> = heard.map(|(_, value)| value.as_str()).collect();
        assert!(!heard.is_empty(), "it was let in by something");
        let heard = heard.join(" and ");
        match number % 6 {
            0 => Answer::json(500, &json!({ "error": { "message": format!("bad luck with {heard}") } }))
                .with_header("retry-after-ms", "1"),
            1 => Answer::events(format!("data: {{\"{heard}\n\n")),
            2 => Answer::events(Speech::call("call_1", "echo", &json!({ "subject": heard })).events(format)),
            3 => says(format, &format!("You came with {heard}.")),
            4 => says(format, "A summary."),
            _ => Answer::json(401, &json!({ "error": { "message": format!("who is {heard}?") } })),
        }
    })
    .await
}

#[tokio::test]
async fn keys_are_nowhere() {
    let lines = Lines::default();
    let _logging = tracing::subscriber::set_default(lines.clone());
    let mut errors = String::new();
    for format in Format::ALL {
        let vendor = chatty(format).await;
        let url = Some(vendor.url(format.base_path()));
        let by_variable = ProviderConfig {
            wire: Some(format.wire()),
            base_url: url.clone(),
            key_variable: Some("FAKE_KEY".into()),
            ..ProviderConfig::default()
        };
        let by_config = ProviderConfig {
            wire: Some(format.wire()),
            base_url: url,
            key: Some(BY_CONFIG.into()),
            headers: BTreeMap::from([("x-authorization".to_owned(), HEADER.to_owned())]),
            ..ProviderConfig::default()
        };
        let config = CatalogConfig {
            providers: BTreeMap::from([("one".to_owned(), by_variable), ("two".to_owned(), by_config)]),
            ..CatalogConfig::default()
        };
        let variable = |name: &str| (name == "FAKE_KEY").then(|| BY_VARIABLE.to_owned());
        let catalog = Catalog::new(config, variable).expect("a catalog");
        errors.push_str(&format!("{catalog:?}"));
        let secrets: Vec<_> = catalog.providers().flat_map(|provider| provider.secrets()).collect();
        let folder = tempfile::tempdir().expect("a folder");
        let store = FileStore::open(folder.path(), Default::default()).expect("a store");
        let echo = TestTool::new("echo", ToolKind::Read).showing(&["now\n"]).shared();
        let setup = Rig::models(Arc::new(catalog), "one/m").store(store).tool(&echo).secrets(secrets);
        let mut rig = setup.start().await;
        for model in ["one/m", "two/m"] {
            let session = rig.create_with(|new| {
                trusting(new);
                new.settings.model = model.into();
            });
            let session = session.await;
            let record =
                rig.ask(session, &format!("hi, {BY_VARIABLE} and {BY_CONFIG}{}", " so long".repeat(300))).await;
            assert_eq!(record.status, RecordStatus::Completed, "{format:?} {model}: {:?}", record.error);
            rig.command(session, Command::Compact).await.expect("it is asked for");
            rig.until(session, "the summary is there", |state| state.compaction.is_none()).await;
            let record = rig.ask(session, "again").await;
            let told = record.error.expect("the key is refused");
            assert_eq!(told.code, "auth", "{format:?} {model}");
            errors.push_str(&told.message);
            let items = rig.sound(session).await;
            items.iter().for_each(|item| assert_clean("an event", &item.json));
            assert_clean("the state", serde_json::to_string(&*rig.state(session).await).unwrap().as_bytes());
            errors.push_str(&format!("{:?}", rig.engine.notices()));
        }
        rig.crash_and_restart().await;
        rig.crash().await;
        let mut files = Vec::new();
        files_below(folder.path(), &mut files);
        assert!(files.len() > 3, "{files:?}");
        files.iter().for_each(|(name, bytes)| assert_clean(name, bytes));
    }
    assert_clean("an error", errors.as_bytes());
    let lines = lines.0.lock().unwrap_or_else(PoisonError::into_inner);
    assert_clean("the log", lines.as_bytes());
}
