//! A warm session: the one task that writes its log. Write, then apply, then show, then answer.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::FutureExt;
use tenure_core::{
    command::{Answer, Command, Input, Partial},
    context::Transcript,
    delta::Stream,
    event::Actor,
    ids::{CallId, SessionId, TurnId},
    session::{Effect, Session},
    time::Timestamp,
};
use tenure_models::tokens::Gauge;
use tenure_store::{Epoch, Head};
use tokio::{
    sync::{OnceCell, mpsc, oneshot, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{Error, Shared, TurnRecord, hub::Hub, load};

mod brake;
mod commit;
mod disk;
mod effects;
mod look;
mod offering;
mod project;
mod recover;
mod restore;
mod reviewing;
mod spool;

pub(crate) use project::row_of;

use brake::Brake;
use disk::Disk;
use offering::Offering;
use spool::Shown;

/// News of effects that may wait before their senders do.
const NEWS_MAX: usize = 256;
/// News taken in at one go, so that deltas that wait together are written together.
const BATCH_MAX: usize = 512;
/// Timers are looked at again after this long, whatever the clock did.
const TIMER_MAX: Duration = Duration::from_secs(60);

/// How to reach a warm session.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(crate) mailbox: mpsc::Sender<Box<Mail>>,
    pub(crate) state: watch::Receiver<Arc<Session>>,
    ended: watch::Receiver<Option<Ended>>,
}

/// Why a task is no longer there.
#[derive(Debug, Clone)]
pub(crate) enum Ended {
    /// It was idle, or the daemon stops. Letters it had not read can be sent again.
    Retired,
    /// It could not go on; sending the same letter again might end the next one as well.
    Failed(Error),
}

impl Handle {
    /// Waits until the task has let go of everything, its work included.
    pub(crate) async fn ended(&self) -> Ended {
        let mut ended = self.ended.clone();
        let last = ended.wait_for(Option::is_some).await.ok().and_then(|last| last.clone());
        last.unwrap_or(Ended::Retired)
    }
}

/// What the outside asks of the task.
pub(crate) enum Mail {
    Command {
        command: Command,
        key: Option<String>,
        actor: Actor,
        reply: oneshot::Sender<Result<Answer, Error>>,
    },
    Turn {
        turn: TurnId,
        reply: oneshot::Sender<Result<Option<TurnRecord>, Error>>,
    },
    /// Asks the task to leave the memory now, if it has nothing to do.
    Leave {
        reply: oneshot::Sender<Leave>,
    },
    /// Expires the session if its last event is older.
    Expire {
        before: Timestamp,
        reply: oneshot::Sender<()>,
    },
}

/// What becomes of a task that was asked to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leave {
    /// It is on its way; its end can be waited for.
    Goes,
    /// Something of it still runs.
    Busy,
}

/// What effects tell the task.
pub(crate) enum News {
    Delta(Fragment),
    /// The last word of an effect; no input if it was stopped.
    Done(Box<Done>),
}

/// What the task turns to.
enum Next {
    Letter(Box<Mail>),
    News(News),
    Time,
    Idle,
    Stop,
}

pub(crate) struct Fragment {
    turn: TurnId,
    step: u32,
    attempt: u32,
    stream: Stream,
    text: String,
}

pub(crate) struct Done {
    effect: Effect,
    input: Option<Input>,
    left: Vec<String>,
}

/// Where an effect puts what it has to show; waits when the session is busy writing.
#[derive(Clone)]
pub(crate) struct Shower {
    news: mpsc::Sender<News>,
    turn: TurnId,
    step: u32,
    attempt: u32,
}

impl Shower {
    pub(crate) async fn show(&self, stream: Stream, text: String) {
        if !text.is_empty() {
            let fragment = Fragment { turn: self.turn, step: self.step, attempt: self.attempt, stream, text };
            // A session that is gone shows nothing more.
            let _ = self.news.send(News::Delta(fragment)).await;
        }
    }
}

pub(crate) struct Warm {
    shared: Arc<Shared>,
    id: SessionId,
    epoch: Epoch,
    state: Arc<Session>,
    state_out: watch::Sender<Arc<Session>>,
    head: Head,
    /// The log's length at the last snapshot.
    snapshot_bytes: u64,
    hub: Arc<Hub>,
    /// The conversation; read from the log when a model is first asked.
    transcript: Option<Transcript>,
    gauge: Gauge,
    /// The model that it is of.
    gauged: String,
    /// In a fixed order, so that the same life goes the same way again.
    running: BTreeMap<Effect, Brake>,
    news: Option<(mpsc::Sender<News>, mpsc::Receiver<News>)>,
    /// Whether news go before letters when both wait: they take turns.
    news_first: bool,
    /// News that the disk would not take yet; nothing else is written before it.
    held: VecDeque<News>,
    disk: Disk,
    /// That commands are refused because of the disk has been told.
    refusal_told: bool,
    recovered: bool,
    shown: Shown,
    /// What a model call that was stopped before its end had used, as far as that is known.
    cut_model: Option<Partial>,
    /// What the newest model call has used up.
    bill: Option<crate::model_call::Bill>,
    /// What the summary under way has used up.
    summary_bill: Option<crate::model_call::Bill>,
    /// What work of the open turn could not end.
    left: Vec<String>,
    /// How long calls of the open turn ran that were stopped.
    took: Vec<(CallId, u64)>,
    stopping_since: Option<Instant>,
    seeded_for: Option<TurnId>,
    offering: Offering,
    records: HashMap<TurnId, TurnRecord>,
    touched: Vec<TurnId>,
    row: Option<tenure_store::Row>,
    /// Whether a turn was open when the row was put: its end is the session's last change.
    row_is_busy: bool,
    counted_turn: bool,
    active_at: Instant,
    wake: Option<Timestamp>,
    /// The right to write is gone, or the log is not what it was: the next task begins anew.
    lost: Option<Error>,
}

impl Warm {
    /// A session that was just made.
    pub(crate) fn created(shared: Arc<Shared>, state: Session, epoch: Epoch, head: Head) -> Warm {
        Self::new(shared, state, epoch, head, 0, true)
    }

    /// A session that was cold.
    pub(crate) async fn load(shared: Arc<Shared>, id: SessionId) -> Result<Warm, Error> {
        let store = shared.parts.store.clone();
        let epoch = store.claim(id).await?;
        let (state, head, snapshot_bytes) = load::state(&*store, id).await?;
        Ok(Self::new(shared, state, epoch, head, snapshot_bytes, false))
    }

    fn new(
        shared: Arc<Shared>,
        state: Session,
        epoch: Epoch,
        head: Head,
        snapshot_bytes: u64,
        recovered: bool,
    ) -> Warm {
        let state = Arc::new(state);
        Warm {
            id: state.id,
            epoch,
            state_out: watch::channel(state.clone()).0,
            head,
            snapshot_bytes,
            hub: shared.hubs.of(state.id),
            transcript: None,
            gauge: Gauge::default(),
            gauged: String::new(),
            running: BTreeMap::new(),
            news: None,
            news_first: false,
            held: VecDeque::new(),
            disk: Disk::Fine,
            refusal_told: false,
            recovered,
            shown: Shown::default(),
            cut_model: None,
            bill: None,
            summary_bill: None,
            left: Vec::new(),
            took: Vec::new(),
            stopping_since: None,
            seeded_for: None,
            offering: Offering::default(),
            records: HashMap::new(),
            touched: Vec::new(),
            row: None,
            row_is_busy: false,
            counted_turn: false,
            active_at: Instant::now(),
            wake: None,
            lost: None,
            shared,
            state,
        }
    }

    pub(crate) fn spawn(self, cell: Arc<OnceCell<Handle>>) -> Handle {
        let (mailbox, letters) = mpsc::channel(self.shared.parts.config.mailbox_max);
        let (ended_out, ended) = watch::channel(None);
        let handle = Handle { mailbox, state: self.state_out.subscribe(), ended };
        let (shared, id) = (self.shared.clone(), self.id);
        self.shared.tasks.clone().spawn(async move {
            // A bug of ours ends this one task; the log and the daemon live.
            let ended = AssertUnwindSafe(self.run(letters)).catch_unwind().await.unwrap_or_else(|_| {
                shared.notice(format!("the task of session {id} ended by a fault of the daemon"));
                Ended::Failed(Error::Bug(format!("the task of session {id} ended unexpectedly")))
            });
            shared.forget(id, &cell);
            ended_out.send_replace(Some(ended));
        });
        handle
    }

    async fn run(mut self, mut letters: mpsc::Receiver<Box<Mail>>) -> Ended {
        let stop = self.shared.stop.clone();
        self.note_turn();
        // What the task does is boxed, so that one that only waits is small: there may be thousands of them.
        Box::pin(self.work()).await;
        self.shared.left_open.looked_at(self.id);
        loop {
            if self.lost.is_some() || stop.is_cancelled() {
                break;
            }
            match self.next(&mut letters, &stop).await {
                Next::Letter(letter) => match *letter {
                    Mail::Leave { reply } if self.is_idle() => {
                        Box::pin(self.settle_down()).await;
                        let _ = reply.send(Leave::Goes);
                        return Ended::Retired;
                    }
                    letter => Box::pin(self.take_mail(letter)).await,
                },
                Next::News(first) => Box::pin(self.take_news(first)).await,
                Next::Time => {}
                Next::Idle => {
                    Box::pin(self.settle_down()).await;
                    // What comes in this instant is dropped unread: its sender sees that and asks the next task.
                    return Ended::Retired;
                }
                Next::Stop => break,
            }
            Box::pin(self.work()).await;
        }
        Box::pin(self.halt(letters)).await;
        self.lost.take().map_or(Ended::Retired, Ended::Failed)
    }

    /// Does all that can be done without hearing anything new.
    async fn work(&mut self) {
        self.retry_held().await;
        self.reconcile().await;
        self.project().await;
    }

    /// Waits for whatever comes first. Of two that wait already, chance never picks: letters and news take turns, so that
    /// neither can starve the other, and time is looked at after each of them anyway.
    async fn next(&mut self, letters: &mut mpsc::Receiver<Box<Mail>>, stop: &CancellationToken) -> Next {
        let idle_at = self.is_idle().then(|| self.active_at + self.shared.parts.config.idle_evict);
        let wake_at = self.wake_at();
        let news_first = self.news_first;
        self.news_first = !news_first;
        let news = self.news.as_mut().filter(|_| self.held.is_empty()).map(|(_, news)| news);
        let mut news = pin!(async { next_news(news).await.map_or(Next::Stop, Next::News) });
        let mut letter = pin!(async { letters.recv().await.map_or(Next::Stop, Next::Letter) });
        let told = async {
            match news_first {
                true => tokio::select! { biased; next = &mut news => next, next = &mut letter => next },
                false => tokio::select! { biased; next = &mut letter => next, next = &mut news => next },
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => Next::Stop,
            next = told => next,
            () = at(wake_at) => Next::Time,
            () = at(idle_at) => Next::Idle,
        }
    }

    fn is_idle(&self) -> bool {
        self.recovered && self.running.is_empty() && self.held.is_empty() && self.state.wanted().is_empty()
    }

    fn wake_at(&self) -> Option<Instant> {
        let timer = self.wake.map(|at| {
            let now = self.shared.parts.clock.now();
            Instant::now() + at.since(now).min(TIMER_MAX)
        });
        let stopping = self.stopping_since.map(|since| since + effects::STOP_PATIENCE);
        // While the disk refuses, nothing else is due.
        self.disk_retry_at().or_else(|| timer.into_iter().chain(stopping).min())
    }

    async fn take_mail(&mut self, mail: Mail) {
        self.active_at = Instant::now();
        match mail {
            Mail::Command { command, key, actor, reply } => {
                let answer = self.command(command, key, actor).await;
                // The asker may be gone; what it asked for is done all the same.
                let _ = reply.send(answer);
            }
            Mail::Turn { turn, reply } => {
                let _ = reply.send(self.record_of(turn).await);
            }
            Mail::Leave { reply } => {
                let _ = reply.send(Leave::Busy);
            }
            Mail::Expire { before, reply } => {
                if self.state.updated_at < before {
                    let idle_ms = self.shared.parts.clock.now().ms().saturating_sub(self.state.updated_at.ms());
                    if let Err(error) = self.commit(Input::Expire { idle_ms }).await {
                        tracing::debug!("session {} did not expire: {error}", self.id);
                    }
                }
                let _ = reply.send(());
            }
        }
    }

    async fn take_news(&mut self, first: News) {
        self.active_at = Instant::now();
        self.held.push_back(first);
        while self.held.len() < BATCH_MAX {
            let Some((_, news)) = &mut self.news else { break };
            let Ok(next) = news.try_recv() else { break };
            self.held.push_back(next);
        }
        self.write_held().await;
    }

    /// A stop of the daemon: work is ended, nothing is written about it.
    async fn halt(&mut self, letters: mpsc::Receiver<Box<Mail>>) {
        drop(letters);
        // What waits for the disk has ended already.
        for news in self.held.drain(..) {
            if let News::Done(done) = news {
                self.running.remove(&done.effect);
            }
        }
        for brake in self.running.values() {
            brake.token.cancel();
        }
        let deadline = Instant::now() + effects::STOP_PATIENCE;
        while !self.running.is_empty() {
            let news = self.news.as_mut().map(|(_, news)| news);
            let Ok(Some(news)) = tokio::time::timeout_at(deadline, next_news(news)).await else { break };
            if let News::Done(done) = news {
                self.running.remove(&done.effect);
            }
        }
    }

    /// Counts this session's open turn for those who wait until none is left.
    fn note_turn(&mut self) {
        let open = self.state.turn.is_some();
        match (self.counted_turn, open) {
            (false, true) => self.shared.open_turns.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.shared.open_turns.fetch_sub(1, Ordering::Relaxed),
            _ => return,
        };
        self.counted_turn = open;
    }
}

impl Drop for Warm {
    fn drop(&mut self) {
        for brake in self.running.values() {
            brake.token.cancel();
        }
        if self.counted_turn {
            self.shared.open_turns.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

async fn next_news(news: Option<&mut mpsc::Receiver<News>>) -> Option<News> {
    match news {
        Some(news) => news.recv().await,
        None => std::future::pending().await,
    }
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
