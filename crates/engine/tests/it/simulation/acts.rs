//! What happens in a life: commands, time, weather, watchers, crashes.

use std::time::Duration;

use tenure_core::{
    event::{Actor, ActorKind},
    ids::SessionId,
    session::KEY_KEPT_MS,
};
use tenure_engine::{Clock, Error};
use tenure_store::{Fault, Harm, Point};
use tenure_testkit::Weather;
use tokio::task::JoinHandle;

use super::{
    commands::{Wish, wishes},
    dice::Dice,
    issued::Issued,
    life::{Crash, Day, Disk, Life},
    readers::Reader,
    script,
    world::tell,
};

const SESSIONS_MAX: usize = 3;
const READERS_MAX: usize = 9;

impl Life {
    pub async fn act(&mut self, day: &Day) -> Option<Crash> {
        let sessions = self.sessions();
        if sessions.is_empty() || (sessions.len() < SESSIONS_MAX && self.dice.chance(4)) {
            self.create(day).await;
            return None;
        }
        let session = self.dice.pick(&sessions);
        match self.dice.roll(100) {
            0..=44 => self.ask(day, session).await,
            45..=59 => tokio::time::sleep(time(&mut self.dice)).await,
            60..=67 => {
                let weather = weather(&mut self.dice);
                tell(|| format!("-- {} of {session}: {weather:?}", day.clock.now()));
                day.store.set(session, weather);
            }
            68..=71 => self.harm_disk(),
            72..=86 => self.watch(day, session).await,
            87..=89 => self.look_up(day, session).await,
            90 => self.fork(day, session).await,
            _ => return Some(self.crash()),
        }
        None
    }

    fn crash(&mut self) -> Crash {
        match self.dice.roll(3) {
            0 => Crash::Stop,
            1 => Crash::PowerCut(self.dice.roll(u64::MAX)),
            _ => Crash::Kill,
        }
    }

    /// Makes a session; the same key and body make it once.
    async fn create(&mut self, day: &Day) {
        let key = self.dice.chance(50).then(|| format!("s{}", self.dice.roll(2)));
        let variant = self.dice.roll(2);
        let new = match &key {
            // The body depends on the variant alone, so that a key comes back with the same one.
            Some(_) => script::new_session(&mut Dice::new(variant), "life:0".into()),
            None => script::new_session(&mut self.dice, format!("life:{}", variant)),
        };
        let first = key.as_ref().and_then(|key| self.created.get(key)).cloned();
        let now = day.clock.now();
        let actor = Actor::user("life");
        let make = || day.engine.create(new.clone(), key.clone(), actor.clone());
        let made = match self.dice.chance(50) && key.is_some() {
            true => {
                let (one, two) = tokio::join!(make(), make());
                let same = match (&one, &two) {
                    (Ok(one), Ok(two)) => one == two,
                    (Err(Error::Store(_)), _) | (_, Err(Error::Store(_))) => true,
                    (one, two) => one.is_err() && two.is_err(),
                };
                self.world.known().faults.need(same, || format!("the same key made {one:?} and {two:?}"));
                one.or(two)
            }
            false => make().await,
        };
        let kept = first.filter(|(.., at)| at.plus_ms(KEY_KEPT_MS) > now);
        let holds = match (&made, kept) {
            (Ok(made), Some((before, id, _))) => *made == id && before == variant,
            (Ok(_), None) => true,
            (Err(Error::Refused(refusal)), Some((before, ..))) => refusal.code == "key_reused" && before != variant,
            // The key of a session that could not be made is bound to what was asked for.
            (Err(Error::Refused(refusal)), None) => refusal.code == "key_reused" && self.unmade,
            // A disk that is being harmed may refuse to make a session.
            (Err(Error::Store(_)), _) => true,
            (Err(_), _) => false,
        };
        self.unmade |= matches!(made, Err(Error::Store(_)));
        self.world.known().faults.need(holds, || format!("the key {key:?} of {kept:?} made {made:?}"));
        if let (Ok(id), Some(key), None) = (made, key, kept) {
            self.created.insert(key, (variant, id, now));
        }
    }

    /// One or more clients ask for something, and wait for the answer or not.
    async fn ask(&mut self, day: &Day, session: SessionId) {
        let asked = {
            let known = self.world.known();
            let Some(record) = known.records.get(&session) else { return };
            wishes(&mut self.dice, record, &mut self.texts)
        };
        let tasks: Vec<JoinHandle<()>> = asked.into_iter().map(|wish| self.send(day, session, wish)).collect();
        match self.dice.roll(4) {
            // Clients that do not wait: more may come, or a crash.
            0 => {}
            1 => tokio::time::sleep(Duration::from_millis(self.dice.roll(40))).await,
            _ => self.join(tasks).await,
        }
    }

    /// Sends a command in a task of its own.
    pub fn send(&mut self, day: &Day, session: SessionId, (command, key): Wish) -> JoinHandle<()> {
        self.asked += 1;
        let tag = format!("client {} asks {}", self.asked % 3, self.asked);
        let actor = Actor { kind: ActorKind::User, id: Some(tag.clone()), surface: Some("life".into()) };
        let asked_at = day.clock.now();
        let issued =
            Issued { tag: tag.clone(), session, command: command.clone(), key: key.clone(), asked_at, answer: None };
        tell(|| format!("-- {asked_at} {tag}: {command:?} {key:?}"));
        self.world.issue(issued);
        let (engine, world) = (day.engine.clone(), self.world.clone());
        let later = Duration::from_millis(self.dice.pick(&[0, 0, 0, 3]));
        tokio::spawn(async move {
            if !later.is_zero() {
                tokio::time::sleep(later).await;
            }
            let answer = engine.command(session, command, key, actor).await;
            world.answered(&tag, answer);
        })
    }

    pub async fn join(&mut self, tasks: Vec<JoinHandle<()>>) {
        for task in tasks {
            let answered = tokio::time::timeout(Duration::from_secs(3600), task).await;
            let holds = matches!(answered, Ok(Ok(())));
            self.world.known().faults.need(holds, || "a command was not answered within an hour".into());
        }
    }

    fn harm_disk(&mut self) {
        let Disk::Faulty(store) = &self.disk else { return };
        let points =
            [Point::LogWrite, Point::LogSync, Point::LogCut, Point::SpoolWrite, Point::FolderSync, Point::Other];
        let harm = self.dice.pick(&[Harm::Nothing, Harm::Half, Harm::All]);
        let fault = Fault::next(self.dice.pick(&points)).with(harm).after(self.dice.roll(4));
        let fault = fault.times(1 + self.dice.roll(2));
        tell(|| format!("-- {fault:?}"));
        store.plan(fault);
    }

    async fn watch(&mut self, day: &Day, session: SessionId) {
        if self.readers.len() < READERS_MAX && self.dice.chance(25) {
            let known = self.world.known();
            let Some(record) = known.records.get(&session) else { return };
            let at = if self.dice.chance(50) { 0 } else { self.dice.index(record.items.len() + 1) };
            self.readers.push(Reader::at(session, at, record));
            return;
        }
        if self.readers.is_empty() {
            return;
        }
        let index = self.dice.index(self.readers.len());
        let reader = &mut self.readers[index];
        if self.dice.chance(20) {
            reader.leave();
        }
        let how_many = self.dice.pick(&[1, 3, 10, 1000]);
        reader.read(&day.engine, &self.world, how_many).await;
    }

    /// Asks for a turn that has come to its end: its record says how.
    async fn look_up(&mut self, day: &Day, session: SessionId) {
        let settled: Vec<_> = {
            let known = self.world.known();
            let Some(record) = known.records.get(&session) else { return };
            record.settled.iter().map(|(turn, how)| (*turn, *how)).collect()
        };
        let Some((turn, how)) = self.dice.pick_of(&settled) else { return };
        let found = day.engine.turn(session, turn, None).await;
        let told = found.as_ref().ok().and_then(|record| serde_json::to_value(record.status).ok());
        let refused = matches!(found, Err(Error::Store(_)));
        let holds = refused || told == Some(serde_json::json!(how));
        self.world.known().faults.need(holds, || format!("{turn} was {how}, and its record says {found:?}"));
    }
}

fn time(dice: &mut Dice) -> Duration {
    let ms = match dice.roll(30) {
        0 => 25 * 60 * 60 * 1000,
        1 => 2 * 60 * 60 * 1000,
        2..=5 => dice.roll(30_000),
        6..=15 => dice.roll(700),
        _ => dice.roll(40),
    };
    Duration::from_millis(ms)
}

fn weather(dice: &mut Dice) -> Weather {
    let mut weather = Weather {
        before: Duration::from_millis(dice.pick(&[0, 1, 20, 400])),
        after: Duration::from_millis(dice.pick(&[0, 1, 20, 400])),
        ..Weather::default()
    };
    let times = 1 + dice.roll(3) as u32;
    match dice.roll(6) {
        0 | 1 => weather.slow = 10,
        2 => weather.appends_refused = times,
        3 => weather.deltas_refused = times,
        4 => weather.claims_refused = times,
        _ => weather.caches_refused = times,
    }
    weather
}
