//! Counts with a vendor's own vocabulary, beside all turns: a thread loads it, counts what it is handed, and ends with it when there is nothing to do for long. What is not counted yet is guessed by its bytes, so nobody ever waits.
//!
//! Each message is counted once: the conversation holds it behind one pointer from step to step, and its count is kept by that pointer for as long as the message lives.

use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    thread,
    time::Duration,
};

use tenure_core::context::{ChatMessage, ModelRequest};

use super::{ATTACHMENT_TOKENS, BYTES_PER_TOKEN, attachments, texts, vocabulary::Vocabulary};

/// What a vendor puts around each message, and before its own reply.
const MESSAGE_TOKENS: u64 = 4;
/// What waits to be counted; more is guessed once more.
const QUEUE_MAX: usize = 16_384;
/// Prompts and tools whose counts are kept.
const PROMPTS_MAX: usize = 256;
/// Counts of messages before it is looked through which of them are gone.
const SWEEP_MIN: usize = 1_024;
/// How long the vocabulary is kept for nothing.
const IDLE: Duration = Duration::from_secs(300);
/// What the first guesses lean on, until more than this was counted.
const PRIOR_BYTES: u64 = 4_096;

/// A vocabulary and what was counted with it.
#[derive(Debug, Default)]
pub struct Counter {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    queued: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By their address.
    messages: HashMap<usize, Kept>,
    sweep_at: usize,
    /// By a digest of their text.
    prompts: HashMap<u64, Option<u64>>,
    queue: VecDeque<Job>,
    /// There is a thread.
    works: bool,
    /// It has something in hand.
    counts: bool,
    /// The thread has panicked: from then on all is guessed.
    broken: bool,
    rate: Rate,
}

/// The count of a message. The weak pointer keeps the address from being given to another message.
#[derive(Debug)]
struct Kept {
    message: Weak<ChatMessage>,
    tokens: Option<u64>,
}

#[derive(Debug)]
enum Job {
    Message(Weak<ChatMessage>),
    Prompt { digest: u64, text: String },
}

/// Tokens for bytes, as counted so far.
#[derive(Debug)]
struct Rate {
    bytes: u64,
    tokens: u64,
}

impl Default for Rate {
    fn default() -> Self {
        Self { bytes: PRIOR_BYTES, tokens: PRIOR_BYTES / BYTES_PER_TOKEN }
    }
}

impl Rate {
    fn guess(&self, bytes: usize) -> u64 {
        let tokens = (bytes as u128 * u128::from(self.tokens)).div_ceil(u128::from(self.bytes));
        u64::try_from(tokens).unwrap_or(u64::MAX)
    }

    fn learn(&mut self, bytes: usize, tokens: u64) {
        // Halved now and then, so that it neither overflows nor forgets what came last.
        if self.bytes > u64::from(u32::MAX) {
            (self.bytes, self.tokens) = (self.bytes / 2, (self.tokens / 2).max(1));
        }
        self.bytes += bytes as u64;
        self.tokens += tokens;
    }
}

impl Counter {
    /// Tokens of a request, its attachments too.
    pub fn of_request(&self, request: &ModelRequest) -> u64 {
        let prompt = prompt(request);
        let mut state = self.shared.lock();
        let mut tokens = state.prompt(&prompt);
        for message in &request.messages {
            tokens = tokens.saturating_add(state.message(message));
        }
        self.hand_over(state);
        tokens.saturating_add(MESSAGE_TOKENS)
    }

    /// The same, where all of it is counted and nothing guessed.
    pub fn counted(&self, request: &ModelRequest) -> Option<u64> {
        let digest = digest(&prompt(request));
        let state = self.shared.lock();
        let mut tokens = state.prompts.get(&digest).copied().flatten()?;
        for message in &request.messages {
            let kept = state.messages.get(&Arc::as_ptr(message).addr())?;
            tokens = tokens.saturating_add(kept.tokens?).saturating_add(around(message));
        }
        Some(tokens.saturating_add(MESSAGE_TOKENS))
    }

    pub fn of_message(&self, message: &Arc<ChatMessage>) -> u64 {
        let mut state = self.shared.lock();
        let tokens = state.message(message);
        self.hand_over(state);
        tokens
    }

    /// Whether all that it was handed is counted.
    pub fn is_idle(&self) -> bool {
        let state = self.shared.lock();
        !state.counts && (state.queue.is_empty() || !state.works)
    }

    /// Starts the thread where there is work and none works.
    fn hand_over(&self, mut state: MutexGuard<'_, State>) {
        if state.queue.is_empty() {
            return;
        }
        if state.works {
            self.shared.queued.notify_one();
            return;
        }
        let shared = Arc::clone(&self.shared);
        // Without a thread all stays guessed; the next request tries again.
        state.works = thread::Builder::new().name("tokens".into()).spawn(move || shared.work()).is_ok();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let working = Working(self, IDLE);
        let vocabulary = Vocabulary::load();
        while let Some(job) = working.next() {
            if let Some((bytes, tokens)) = job.count(&vocabulary) {
                self.lock().learn(&job, bytes, tokens);
            }
        }
    }
}

/// The thread at work, and how long it waits for more.
struct Working<'a>(&'a Shared, Duration);

impl Working<'_> {
    /// What is to be counted next. Whoever adds more after its last word finds nobody at work.
    fn next(&self) -> Option<Job> {
        let mut state = self.0.lock();
        state.counts = false;
        if state.queue.is_empty() {
            let nothing = |state: &mut State| state.queue.is_empty();
            let waited = self.0.queued.wait_timeout_while(state, self.1, nothing);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let job = state.queue.pop_front();
        (state.works, state.counts) = (job.is_some(), job.is_some());
        job
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let mut state = self.0.lock();
            state.queue.clear();
            (state.works, state.counts, state.broken) = (false, false, true);
        }
    }
}

impl Job {
    /// Bytes and tokens of its text; `None` where the message is gone.
    fn count(&self, vocabulary: &Vocabulary) -> Option<(usize, u64)> {
        let (mut bytes, mut tokens) = (0, 0);
        let mut add = |text: &str| {
            bytes += text.len();
            tokens += vocabulary.count(text);
        };
        match self {
            Job::Message(message) => texts(&*message.upgrade()?, &mut add),
            Job::Prompt { text, .. } => add(text),
        }
        Some((bytes, tokens))
    }
}

impl State {
    fn learn(&mut self, job: &Job, bytes: usize, tokens: u64) {
        self.rate.learn(bytes, tokens);
        let place = match job {
            Job::Message(message) => self.messages.get_mut(&message.as_ptr().addr()).map(|kept| &mut kept.tokens),
            Job::Prompt { digest, .. } => self.prompts.get_mut(digest),
        };
        if let Some(place) = place {
            *place = Some(tokens);
        }
    }

    fn message(&mut self, message: &Arc<ChatMessage>) -> u64 {
        let around = around(message);
        let address = Arc::as_ptr(message).addr();
        let known = self.messages.get(&address);
        if let Some(Kept { tokens: Some(tokens), .. }) = known {
            return tokens.saturating_add(around);
        }
        if known.is_none() && self.has_room() {
            self.sweep();
            let weak = Arc::downgrade(message);
            self.queue.push_back(Job::Message(weak.clone()));
            self.messages.insert(address, Kept { message: weak, tokens: None });
        }
        let mut bytes = 0;
        texts(message, &mut |text| bytes += text.len());
        self.rate.guess(bytes).saturating_add(around)
    }

    fn prompt(&mut self, text: &str) -> u64 {
        let digest = digest(text);
        let known = self.prompts.get(&digest);
        if let Some(Some(tokens)) = known {
            return *tokens;
        }
        if known.is_none() && self.has_room() {
            if self.prompts.len() >= PROMPTS_MAX {
                self.prompts.clear();
            }
            self.prompts.insert(digest, None);
            self.queue.push_back(Job::Prompt { digest, text: text.to_owned() });
        }
        self.rate.guess(text.len())
    }

    fn has_room(&self) -> bool {
        !self.broken && self.queue.len() < QUEUE_MAX
    }

    /// Forgets messages that are gone, at a cost that is spread over those that come.
    fn sweep(&mut self) {
        if self.messages.len() < self.sweep_at.max(SWEEP_MIN) {
            return;
        }
        self.messages.retain(|_, kept| kept.message.strong_count() > 0);
        self.sweep_at = self.messages.len() * 2;
    }
}

/// What a message takes besides its text.
fn around(message: &ChatMessage) -> u64 {
    MESSAGE_TOKENS + attachments(message) * ATTACHMENT_TOKENS
}

fn digest(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// The part of a request that is the same from step to step.
fn prompt(request: &ModelRequest) -> String {
    let mut text = String::new();
    for system in &request.system {
        text.push_str(system);
        text.push('\n');
    }
    for tool in &*request.tools {
        text.push_str(&format!("{}\n{}\n{}\n", tool.name, tool.description, tool.input_schema));
    }
    text
}

#[cfg(test)]
mod tests {
    use tenure_core::message::Part;

    use super::*;

    fn message(text: &str) -> Arc<ChatMessage> {
        Arc::new(ChatMessage::User { parts: vec![Part::text(text)] })
    }

    #[test]
    fn messages_that_are_gone_are_forgotten() {
        let mut state = State::default();
        let kept = message("stays");
        state.message(&kept);
        for _ in 0..10 * SWEEP_MIN {
            state.queue.clear();
            state.message(&message("goes"));
        }
        assert!(state.messages.len() <= SWEEP_MIN, "{}", state.messages.len());
        assert!(state.messages.contains_key(&Arc::as_ptr(&kept).addr()));
    }

    #[test]
    fn a_message_is_handed_over_once() {
        let mut state = State::default();
        let said = message("hello");
        for _ in 0..3 {
            state.message(&said);
            state.prompt("You help.");
        }
        assert_eq!(state.queue.len(), 2);
        let job = state.queue.pop_front().unwrap();
        state.learn(&job, 5, 1);
        assert_eq!(state.message(&said), 1 + MESSAGE_TOKENS);
    }

    #[test]
    fn the_thread_ends_when_nothing_comes() {
        let shared = Shared::default();
        shared.lock().queue.push_back(Job::Message(Weak::new()));
        let working = Working(&shared, Duration::ZERO);
        assert!(working.next().is_some());
        assert!(shared.lock().works);
        assert!(working.next().is_none());
        assert!(!shared.lock().works);
    }
}
