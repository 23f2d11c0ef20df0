//! A model that says more than can be taken at once: it waits, and nothing of it piles up on its way.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use tenure_core::{
    context::ModelRequest,
    cursor::Cursor,
    message::Part,
    model::{Fault, MicroUsd, StopReason, Usage},
};
use tenure_engine::RecordStatus;
use tenure_models::{Model, ModelEvent, Registry};
use tenure_store::MemoryStore;
use tenure_testkit::{Rig, UnwillingStore, as_json};

const FRAGMENTS: usize = 5_000;
/// What may be on its way between the model and the disk: a full channel, one batch, and one in hand.
const UNDER_WAY_MAX: usize = 256 + 512 + 1;

/// Says all its fragments as fast as they are taken, and counts those that were.
#[derive(Clone, Default)]
struct Talkative {
    taken: Arc<AtomicUsize>,
}

impl Registry for Talkative {
    fn resolve(&self, _name: &str) -> Result<Arc<dyn Model>, Fault> {
        Ok(Arc::new(self.clone()))
    }
}

#[async_trait]
impl Model for Talkative {
    async fn stream(&self, _request: ModelRequest) -> Result<BoxStream<'static, Result<ModelEvent, Fault>>, Fault> {
        let taken = self.taken.clone();
        let words = stream::iter(0..FRAGMENTS).map(move |number| {
            taken.fetch_add(1, Ordering::SeqCst);
            Ok(ModelEvent::Text(format!("{number} ")))
        });
        Ok(words.chain(stream::iter([Ok(ModelEvent::Done { stop_reason: StopReason::EndTurn })])).boxed())
    }

    fn cost(&self, _usage: &Usage) -> Option<MicroUsd> {
        Some(0)
    }

    fn takes(&self, part: &Part) -> bool {
        matches!(part, Part::Text { .. })
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_disk_does_not_take_is_not_asked_of_the_model() {
    let model = Talkative::default();
    let store = UnwillingStore::over(MemoryStore::new());
    let rig = Rig::models(Arc::new(model.clone()), "talkative").store(store.clone()).start().await;
    let session = rig.create().await;
    let mut watcher = rig.watch(session, Cursor::START).await;
    store.refuse_deltas(session, usize::MAX);
    let turn = rig.say(session, "go").await;
    store.refused(1).await;
    // Time only goes on when nothing is left to do, so this is all that can come.
    tokio::time::sleep(Duration::from_secs(600)).await;
    let taken = model.taken.load(Ordering::SeqCst);
    assert!((1..=UNDER_WAY_MAX).contains(&taken), "{taken} fragments are under way");
    store.refuse_deltas(session, 0);
    let record = rig.settled(session, turn).await;
    assert_eq!(record.status, RecordStatus::Completed, "{:?}", record.error);
    let seen = watcher.until("turn_completed").await;
    let deltas = seen.iter().filter(|item| item.wire_type == "model_output_delta");
    let shown: String = deltas.map(|item| as_json(item)["data"]["text"].as_str().unwrap().to_owned()).collect();
    assert_eq!(shown, (0..FRAGMENTS).map(|number| format!("{number} ")).collect::<String>());
}
