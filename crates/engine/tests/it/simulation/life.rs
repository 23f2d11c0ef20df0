//! One life: sessions in one engine, several clients and watchers, good and bad weather, crashes; and after every act a look at everything.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tenure_core::{event::Event, ids::SessionId, redact::Secrets, time::Timestamp};
use tenure_engine::{Clock, Engine, EngineConfig, MemoryStanding, Parts, Reading};
use tenure_models::scripted::{ScriptedModel, parse};
use tenure_store::{FaultyStore, Limit, MemoryStore, SpoolPage, Store};
use tenure_testkit::{TestClock, WeatherStore};
use tenure_tools::Registry;

use super::{
    dice::Dice,
    readers::{Reader, json},
    script,
    work::{LifeModels, LifeTool},
    world::{Sum, World, tell},
};

/// 2025-01-01.
const BORN_MS: u64 = 1_735_689_600_000;
const ACTS: u64 = 40;
/// A life that takes longer than this on the wall hangs.
const WALL_MAX: Duration = Duration::from_secs(600);

/// How a daemon comes to its end.
#[derive(Debug, Clone, Copy)]
pub enum Crash {
    /// It is told to stop.
    Stop,
    /// kill -9.
    Kill,
    PowerCut(u64),
}

pub enum Disk {
    Memory(Arc<MemoryStore>),
    Faulty(Arc<FaultyStore>),
}

impl Disk {
    fn store(&self) -> Arc<dyn Store> {
        match self {
            Disk::Memory(store) => store.clone(),
            Disk::Faulty(store) => store.clone(),
        }
    }
}

pub struct Life {
    pub dice: Dice,
    pub world: Arc<World>,
    pub disk: Disk,
    models: Arc<LifeModels>,
    tools: Arc<Registry>,
    standing: Arc<MemoryStanding>,
    config: EngineConfig,
    now: Timestamp,
    drawn: u64,
    pub acts_left: u64,
    pub readers: Vec<Reader>,
    /// Counts what must be told apart: commands and texts.
    pub asked: u64,
    pub texts: u64,
    /// Keys of sessions that were made, with the variant of their body.
    pub created: BTreeMap<String, (u64, SessionId, Timestamp)>,
    /// Forks and their events.
    pub forks: BTreeMap<SessionId, Vec<Event>>,
    /// A session could not be made.
    pub unmade: bool,
    began: Instant,
}

/// One run of the daemon in a life.
pub struct Day {
    pub engine: Engine,
    pub clock: Arc<TestClock>,
    pub store: Arc<WeatherStore>,
}

impl Life {
    pub fn new(seed: u64) -> Life {
        let mut dice = Dice::new(seed);
        let world = Arc::new(World::default());
        let scripts = (0..2).map(|index| {
            let script = parse(&script::script(&mut dice).to_string()).expect("a script of a life is well formed");
            (format!("life:{index}"), ScriptedModel::new("life", script))
        });
        let models = Arc::new(LifeModels { scripts: scripts.collect(), world: world.clone() });
        let tools = Arc::new(Registry::with_tools(LifeTool::all(&world)).expect("tools of a life fit together"));
        let disk = match dice.roll(4) {
            0 => Disk::Faulty(FaultyStore::new()),
            _ => Disk::Memory(MemoryStore::new()),
        };
        let config = EngineConfig {
            idle_evict: Duration::from_millis(dice.pick(&[1, 100, 30_000])),
            session_idle_max: Duration::from_secs(3 * 24 * 60 * 60),
            reading: Reading::InPlace,
            ..EngineConfig::default()
        };
        Life {
            dice,
            world,
            disk,
            models,
            tools,
            standing: Arc::default(),
            config,
            now: Timestamp::from_ms(BORN_MS),
            drawn: 1,
            acts_left: ACTS,
            readers: vec![],
            asked: 0,
            texts: 0,
            created: BTreeMap::new(),
            forks: BTreeMap::new(),
            unmade: false,
            began: Instant::now(),
        }
    }

    /// Lives to the end, or to the first fault.
    pub fn live(&mut self) -> Result<Sum, String> {
        loop {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
            let runtime = runtime.map_err(|error| error.to_string())?;
            let crash = runtime.block_on(self.day());
            // A kill: every task is dropped where it stands.
            self.readers.iter_mut().for_each(Reader::leave);
            drop(runtime);
            match crash? {
                Some(crash) => self.fall(crash)?,
                None => break,
            }
        }
        let known = self.world.known();
        Ok(Sum { lives: 1, acts: ACTS, checks: known.faults.checks, ..known.sum })
    }

    /// One run of the daemon, up to its crash or to the end of the life.
    async fn day(&mut self) -> Result<Option<Crash>, String> {
        let store = WeatherStore::over(self.disk.store(), self.world.clone());
        self.find(&*store).await;
        self.look_at_forks(&*store).await;
        let clock = Arc::new(TestClock::going_on(self.now, self.drawn));
        let engine = Engine::start(Parts {
            store: store.clone(),
            models: self.models.clone(),
            tools: self.tools.clone(),
            foreign: None,
            clock: clock.clone(),
            secrets: Secrets::default(),
            standing: self.standing.clone(),
            config: self.config.clone(),
        });
        let day = Day { engine: engine.await, clock, store };
        let crash = self.acts(&day).await;
        self.now = day.clock.now();
        self.drawn = day.clock.drawn();
        crash
    }

    async fn acts(&mut self, day: &Day) -> Result<Option<Crash>, String> {
        while self.acts_left > 0 {
            self.acts_left -= 1;
            let crash = self.act(day).await;
            self.look(day).await?;
            if let Some(crash) = crash {
                if let Crash::Stop = crash {
                    self.stop(day).await?;
                }
                return Ok(Some(crash));
            }
        }
        self.finish(day).await?;
        Ok(None)
    }

    async fn stop(&mut self, day: &Day) -> Result<(), String> {
        let stopped = tokio::time::timeout(Duration::from_secs(600), day.engine.shutdown()).await;
        stopped.map_err(|_| "the daemon does not stop".to_owned())?;
        self.first_fault()
    }

    /// What is found by the next daemon, and when.
    fn fall(&mut self, crash: Crash) -> Result<(), String> {
        tell(|| format!("-- {} {crash:?}", self.now));
        if let Disk::Faulty(store) = &self.disk {
            let found = match crash {
                Crash::PowerCut(seed) => store.after_power_cut(seed),
                Crash::Stop | Crash::Kill => store.after_kill(),
            };
            self.disk = Disk::Faulty(found.map_err(|error| format!("the store does not open: {error}"))?);
            if let Crash::PowerCut(_) = crash {
                self.world.known().records.values_mut().for_each(|record| record.lose_power());
            }
        }
        self.world.known().sum.crashes += 1;
        let away = match self.dice.roll(12) {
            0 => 25 * 60 * 60 * 1000,
            1 => 3 * 60 * 60 * 1000,
            2 | 3 => 1000 * self.dice.roll(20),
            _ => self.dice.roll(300),
        };
        self.now = self.now.plus_ms(away);
        self.first_fault()
    }

    /// What a new daemon finds: all that lasts, and perhaps what the disk had refused before the crash. Who asked for that
    /// was told of an error, which is no promise.
    async fn find(&self, store: &dyn Store) {
        for session in self.sessions() {
            let head = self.world.known().records[&session].head();
            let found = store.read(session, head, Limit::default()).await.unwrap_or_default();
            let events: Vec<Event> = found.iter().filter_map(|stored| stored.parse().ok()).collect();
            let open = {
                let known = &mut *self.world.known();
                let Some(record) = known.records.get_mut(&session) else { return };
                if !events.is_empty() {
                    let unsure = record.unsure;
                    known.faults.need(unsure, || format!("{session}: events were found that nobody wrote: {events:?}"));
                    record.take(&events, &[], &mut known.faults);
                    record.unsure = unsure;
                }
                (record.heard, record.read_back) = (record.head(), 0);
                record.open.as_ref().map(|open| open.id)
            };
            let Some(turn) = open else { continue };
            if let Ok(SpoolPage::Records(records)) = store.spool_read(session, turn, 0, usize::MAX).await {
                self.world.find_deltas(session, turn, &records);
            }
        }
    }

    pub fn first_fault(&self) -> Result<(), String> {
        if self.began.elapsed() > WALL_MAX {
            return Err("the life does not come to its end".into());
        }
        match self.world.known().faults.first() {
            Some(fault) => Err(fault.to_owned()),
            None => Ok(()),
        }
    }

    pub fn sessions(&self) -> Vec<SessionId> {
        self.world.known().records.keys().copied().collect()
    }

    /// Everything that ever came to last, byte by byte.
    pub fn story(&self) -> Vec<String> {
        let known = self.world.known();
        let items = known.records.values().flat_map(|record| record.items.iter().map(move |item| (item, record)));
        items.map(|(item, record)| String::from_utf8_lossy(&json(item, record).unwrap_or_default()).into()).collect()
    }
}
