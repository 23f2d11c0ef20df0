//! What clients ask for: every command there is, sensible or not, alone or against each other.

use tenure_core::{
    command::{Command, Update, Verdict},
    ids::{CallId, TurnId},
    message::{Attachment, Delivery, Part, Role},
    policy::Scope,
    session::Phase,
};

use super::{dice::Dice, record::Record, script};

/// More than is held for a live watcher.
const LONG_BYTES: usize = 24 * 1024;

/// A command and its idempotency key.
pub type Wish = (Command, Option<String>);

/// What one client asks for, or several in the same instant.
pub fn wishes(dice: &mut Dice, record: &Record, count: &mut u64) -> Vec<Wish> {
    let waiting = record.waiting();
    match dice.roll(12) {
        // The turn waits for a summary, which takes an instant: somebody loses patience in it.
        6..=8 if record.waits_for_summary() => vec![(cancel(None), None)],
        // What was changed is taken back, by one or by two at once.
        6..=10 if record.may_undo() => {
            let undo = |dice: &mut Dice| Command::Undo {
                turn_id: if dice.chance(70) { None } else { any_turn(dice, record) },
            };
            let key = dice.chance(30).then(|| key(dice));
            (0..1 + dice.roll(2)).map(|_| (undo(dice), key.clone())).collect()
        }
        // Two answer the same approval at once, perhaps not alike.
        0 | 1 if !waiting.is_empty() => {
            let call = dice.pick(&waiting);
            (0..2 + dice.roll(2)).map(|_| (answer(dice, call), None)).collect()
        }
        2 if !waiting.is_empty() => {
            let call = dice.pick(&waiting);
            let answered = vec![(answer(dice, call), None), (cancel(None), None)];
            shuffled(dice, answered)
        }
        // The same key at once: the same words, or others.
        3 => {
            let key = key(dice);
            let body = message(dice, &key);
            let other = if dice.chance(30) { message(dice, "other words") } else { body.clone() };
            shuffled(dice, vec![(body, Some(key.clone())), (other, Some(key))])
        }
        4 if dice.chance(15) => {
            let last = vec![(message(dice, &text(count)), None), (Command::End { reason: None }, None)];
            shuffled(dice, last)
        }
        5 => (0..2 + dice.roll(2)).map(|_| wish(dice, record, count)).collect(),
        _ => vec![wish(dice, record, count)],
    }
}

fn shuffled(dice: &mut Dice, mut wishes: Vec<Wish>) -> Vec<Wish> {
    if dice.chance(50) {
        wishes.reverse();
    }
    wishes
}

/// Words that no other message has; some are long enough to be worth a summary.
fn text(count: &mut u64) -> String {
    *count += 1;
    format!("words {count}{}", " and so on".repeat((*count * 37 % 90) as usize))
}

fn key(dice: &mut Dice) -> String {
    format!("k{}", dice.roll(8))
}

fn wish(dice: &mut Dice, record: &Record, count: &mut u64) -> Wish {
    if dice.chance(15) {
        // A key that may have been used before. The same key mostly comes with the same words.
        let key = key(dice);
        let words = if dice.chance(90) { key.clone() } else { text(count) };
        return (message_plain(&words), Some(key));
    }
    let command = command(dice, record, count);
    let keyed = dice.chance(15);
    (command, keyed.then(|| key(dice)))
}

fn command(dice: &mut Dice, record: &Record, count: &mut u64) -> Command {
    let waiting = record.waiting();
    let interrupted = record.state.turn.as_ref().filter(|turn| turn.phase == Phase::Interrupted).map(|turn| turn.id);
    match dice.roll(24) {
        0..=5 => {
            // Some are too long to be held for live watchers.
            let text = text(count);
            let times = if dice.chance(4) { LONG_BYTES / text.len() + 1 } else { 1 };
            message(dice, &text.repeat(times))
        }
        6 => Command::StartTurn,
        7..=11 => match dice.pick_of(&waiting).filter(|_| !dice.chance(10)) {
            Some(call) => answer(dice, call),
            None => any_call(dice, record).map_or(Command::StartTurn, |call| answer(dice, call)),
        },
        12 | 13 => {
            let turn = if dice.chance(60) { None } else { any_turn(dice, record) };
            cancel(turn)
        }
        14 | 15 => match any_turn(dice, record) {
            Some(turn_id) => Command::Retry { turn_id },
            None => Command::StartTurn,
        },
        16 | 17 => match interrupted.or_else(|| any_turn(dice, record)) {
            Some(turn_id) => Command::Resume { turn_id },
            None => Command::StartTurn,
        },
        21 if dice.chance(80) => Command::Compact,
        20 if dice.chance(80) => Command::Undo { turn_id: if dice.chance(50) { None } else { any_turn(dice, record) } },
        22 if dice.chance(50) => attach(dice),
        23 if dice.chance(12) => Command::End { reason: dice.pick(&[None, Some("enough".to_owned())]) },
        _ => update(dice, record),
    }
}

/// Few names, so that the same file comes again.
fn attach(dice: &mut Dice) -> Command {
    let name = dice.pick(&["a.png", "b.txt", "c.wav"]);
    let (r#ref, mime_type, digest) = (format!("attachments/{name}"), "text/plain".into(), name[..1].repeat(64));
    Command::Attach { attachment: Attachment { r#ref, mime_type, bytes: 7, digest } }
}

fn message_plain(text: &str) -> Command {
    let (role, delivery) = (Role::User, Delivery::Queue);
    Command::SendMessage { role, parts: vec![Part::text(text)], delivery, auto_run: None }
}

fn message(dice: &mut Dice, text: &str) -> Command {
    let role = match dice.roll(40) {
        0 => Role::Assistant,
        1 => Role::System,
        _ => Role::User,
    };
    let parts = match dice.roll(60) {
        0 => vec![],
        1 => vec![Part::Image { r#ref: "x".into(), mime_type: "image/png".into() }],
        _ => vec![Part::text(text)],
    };
    let delivery = dice.pick(&[Delivery::Queue, Delivery::Queue, Delivery::Steer]);
    Command::SendMessage { role, parts, delivery, auto_run: dice.pick(&[None, None, None, Some(true), Some(false)]) }
}

pub fn answer(dice: &mut Dice, call: CallId) -> Command {
    let verdict = dice.pick(&[Verdict::Approve, Verdict::Approve, Verdict::Deny]);
    let scope = dice.pick(&[Scope::Once, Scope::Once, Scope::Session, Scope::Always]);
    Command::Answer { turn_id: None, call, verdict, scope, reason: dice.pick(&[None, Some("so it is".to_owned())]) }
}

fn cancel(turn_id: Option<TurnId>) -> Command {
    Command::Cancel { turn_id, reason: None }
}

fn any_call(dice: &mut Dice, record: &Record) -> Option<CallId> {
    let calls: Vec<CallId> = record.calls.keys().copied().collect();
    dice.pick_of(&calls)
}

/// Open, queued or settled.
fn any_turn(dice: &mut Dice, record: &Record) -> Option<TurnId> {
    let mut turns: Vec<TurnId> = record.settled.keys().rev().take(8).copied().collect();
    turns.extend(&record.queued);
    turns.extend(record.open.as_ref().map(|open| open.id));
    dice.pick_of(&turns)
}

fn update(dice: &mut Dice, record: &Record) -> Command {
    let (mut title, mut policy, mut labels, mut budgets) = (None, None, None, None);
    match dice.roll(7) {
        0 => title = Some(dice.pick(&["one title", "another title"]).to_owned()),
        1 => labels = Some(vec![dice.pick(&["red", "blue"]).to_owned()]),
        2 | 3 => policy = Some(script::policy(dice)),
        4 => budgets = Some(record.state.budgets.clone()),
        5 => {
            let mut lower = record.state.budgets.clone();
            lower.max_steps = Some(1);
            budgets = Some(lower);
        }
        _ => budgets = Some(script::raised(&record.state.budgets)),
    }
    let if_match = match dice.roll(10) {
        0 => Some(record.state.seq),
        1 => Some(record.state.seq + 1),
        _ => None,
    };
    Command::Update(Box::new(Update { title, policy, labels, budgets, if_match, ..Update::default() }))
}
