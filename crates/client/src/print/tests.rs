//! What a terminal shows for given events.

use serde_json::{Value, json};

use super::*;

fn event(seq: u64, wire_type: &str, data: Value) -> Event {
    let session_id = "sess_1".into();
    let (pos, turn_id, actor) = (None, None, None);
    let ts = "2026-01-01T00:00:00Z".into();
    Event { seq, pos, ts, session_id, turn_id, wire_type: wire_type.into(), actor, data }
}

/// All text of both channels in order; the answer's stands in brackets.
fn show(look: Look, detail: Detail, events: &[(&str, Value)]) -> String {
    shown_by(Printer::new(look, detail), events)
}

fn shown_by(mut printer: Printer, events: &[(&str, Value)]) -> String {
    let mut pieces = vec![];
    for (at, (wire_type, data)) in events.iter().enumerate() {
        pieces.extend(printer.event(&event(at as u64 + 1, wire_type, data.clone())));
    }
    pieces.extend(printer.finish());
    let shown = |piece: &Piece| match piece.channel {
        Channel::Answer => format!("[{}]", piece.text),
        Channel::Note => piece.text.clone(),
    };
    pieces.iter().map(shown).collect()
}

#[track_caller]
fn story(events: &[(&str, Value)], expected: &str) {
    assert_eq!(show(Look::PLAIN, Detail::Story, events), expected);
}

fn delta(text: &str, offset: usize) -> Value {
    json!({"step": 1, "attempt": 1, "offset": offset, "text": text})
}

#[test]
fn an_answer_streams_and_its_line_is_closed_before_a_note() {
    story(
        &[
            ("model_output_delta", delta("Hel", 0)),
            ("model_output_delta", delta("lo", 3)),
            ("model_output_completed", json!({"step": 1, "attempt": 1, "text": "Hello"})),
            ("tool_call_started", json!({"name": "shell", "input": {"command": "make\ntest"}})),
            ("tool_output_delta", json!({"tool_call_id": "call_1", "text": "one\ntw"})),
            ("tool_output_delta", json!({"tool_call_id": "call_1", "text": "o"})),
            ("tool_call_completed", json!({"name": "shell", "outcome": "finished", "ok": true, "duration_ms": 1200})),
        ],
        "[Hel][lo][\n]→ shell  make⏎test\n  │ one\n  │ two\n✓ shell  1.2 s\n",
    );
}

#[test]
fn the_log_tells_what_became_of_a_session() {
    let changed = json!({"title": "Doors", "labels": ["a", "b"], "policy": {}});
    let forked = json!({"from": "sess_0", "at_seq": 7, "model": "scripted"});
    let events = [("session_updated", changed), ("session_updated", json!({"labels": []})), ("session_forked", forked)];
    assert_eq!(
        show(Look::PLAIN, Detail::Log, &events),
        "    1  session_updated  title: Doors, labels: a b, another policy\n    \
             2  session_updated  no labels\n    \
             3  session_forked  from sess_0 at event 7, model: scripted\n"
    );
}

#[test]
fn a_change_tells_how_many_lines_came_and_went() {
    let done = |files: Value| json!({"name": "w", "outcome": "finished", "ok": true, "duration_ms": 5, "detail": {"files": files}});
    let two = json!([{"path": "a", "added": 2, "removed": 50}, {"path": "b", "added": 1, "removed": 0}]);
    story(&[("tool_call_completed", done(two))], "✓ w  5 ms  +3 -50\n");
    story(&[("tool_call_completed", done(json!([{"path": "a", "added": null, "removed": null}])))], "✓ w  5 ms\n");
}

#[test]
fn text_that_never_streamed_is_shown_when_it_is_complete() {
    story(&[("model_output_completed", json!({"step": 1, "attempt": 1, "text": "Hello"}))], "[Hello][\n]");
    story(
        &[
            ("model_output_delta", delta("Hä", 0)),
            ("stream_reset", json!({})),
            ("model_output_completed", json!({"step": 1, "attempt": 1, "text": "Hällo"})),
        ],
        "[Hä][\n]Streamed fragments are gone; whole texts follow.\n[llo][\n]",
    );
}

#[test]
fn a_shorter_context_is_told() {
    story(
        &[
            ("compaction_started", json!({"trigger": "threshold", "blocking": true, "tokens": 9000})),
            (
                "compaction_failed",
                json!({"reason": {"kind": "overloaded", "message": "busy"}, "retry_at": "2026-01-01T00:00:00Z"}),
            ),
            ("context_compacted", json!({"tokens_before": 9000, "tokens_after": 700, "cost_micro_usd": 1200})),
            ("compaction_started", json!({"trigger": "asked", "blocking": false})),
            (
                "compaction_failed",
                json!({"reason": {"kind": "bad_request", "message": "there is nothing to leave out"}}),
            ),
        ],
        "The conversation fills the model's window: its older part is summarized (9000 tokens); the turn waits for it…\n\
         The conversation could not be summarized: busy; it is tried again\n\
         Summarized: 9000 tokens became 700, $0.0012. The log keeps everything.\n\
         The older part of the conversation is summarized…\n\
         The conversation could not be summarized: there is nothing to leave out\n",
    );
}

#[test]
fn what_is_missing_is_told() {
    let events = [
        ("event_lost", json!({"reason": "its checksum does not fit"})),
        ("log_damaged", json!({"kind": "unreadable", "from_seq": 3, "reason": "it is no JSON"})),
    ];
    let (lost, unreadable) = (
        "This event was lost to damage: its checksum does not fit",
        "The log is damaged; from event 3 on it cannot be read: it is no JSON",
    );
    story(&events, &format!("{lost}\n{unreadable}\n"));
    let log = format!("    1  event_lost  {lost}\n    2  log_damaged  {unreadable}\n");
    assert_eq!(show(Look::PLAIN, Detail::Log, &events), log);
}

#[test]
fn the_next_attempt_is_shown_whole() {
    let again = json!({"step": 1, "attempt": 2, "offset": 0, "text": "B"});
    story(
        &[
            ("model_output_delta", delta("A", 0)),
            ("model_attempt_failed", json!({"reason": {"kind": "interrupted", "message": "stopped"}})),
            ("model_output_delta", again),
            ("model_output_completed", json!({"step": 1, "attempt": 2, "text": "B"})),
        ],
        "[A][\n]The model's answer was cut (interrupted): stopped. What was said of it does not count.\n[B][\n]",
    );
}

#[test]
fn a_failed_attempt_that_ends_the_turn_is_told_once() {
    let reason = json!({"kind": "unknown_model", "message": "no such model"});
    story(
        &[
            ("model_attempt_failed", json!({"reason": reason})),
            ("turn_failed", json!({"code": "unknown_model", "message": "no such model"})),
            ("model_attempt_failed", json!({"reason": reason, "retry_at": "2026-01-01T00:00:00Z"})),
            (
                "tool_call_completed",
                json!({"name": "shell", "outcome": "not_run", "ok": false, "error": "not run: the turn was canceled"}),
            ),
        ],
        "The turn failed: no such model (unknown_model)\n\
         The model did not answer (unknown_model): no such model. Trying again.\n✗ shell  not run: the turn was canceled\n",
    );
}

fn failed(kind: &str, text: &str, retry_at: &str) -> (&'static str, Value) {
    let reason = json!({"kind": kind, "message": "HTTP 429"});
    ("model_attempt_failed", json!({"reason": reason, "text": text, "retry_at": retry_at}))
}

#[test]
fn what_is_tried_again_says_when_and_the_same_is_not_told_twice() {
    let same = |at: &str| failed("rate_limited", "", at);
    story(
        &[
            same("2026-01-01T00:00:12.300Z"),
            same("2026-01-01T00:01:30Z"),
            failed("network", "", "2026-01-01T00:00:02Z"),
            failed("stream_cut", "Hel", "2026-01-01T00:00:01Z"),
            ("model_output_completed", json!({"step": 1, "attempt": 5, "text": "Hello", "stop_reason": "end_turn"})),
            same("2026-01-01T00:00:00.100Z"),
        ],
        "The model did not answer (rate_limited): HTTP 429. Trying again in 12 s.\n\
         The same once more (rate_limited). Trying again in 1 min.\n\
         The model did not answer (network): HTTP 429. Trying again in 2 s.\n\
         The model's answer was cut (stream_cut): HTTP 429. What was said of it does not count. Trying again in 1 s.\n\
         [Hello][\n]The model did not answer (rate_limited): HTTP 429. Trying again.\n",
    );
}

#[test]
fn where_only_whole_answers_are_wanted_abandoned_text_is_not_shown() {
    let events = [
        ("model_output_delta", delta("Hel", 0)),
        failed("stream_cut", "Hel", "2026-01-01T00:00:01Z"),
        ("model_output_delta", json!({"step": 1, "attempt": 2, "offset": 0, "text": "Good"})),
        ("model_output_completed", json!({"step": 1, "attempt": 2, "text": "Good day", "stop_reason": "end_turn"})),
    ];
    assert_eq!(
        shown_by(Printer::new(Look::PLAIN, Detail::Story).answered(Answered::Whole), &events),
        "The model's answer was cut (stream_cut): HTTP 429. Trying again in 1 s.\n[Good day][\n]"
    );
}

#[test]
fn an_answer_that_is_not_one_is_told() {
    let done = |text: &str, stop: &str| json!({"step": 1, "attempt": 1, "text": text, "stop_reason": stop});
    for (text, stop, told) in [
        ("Hel", "max_tokens", "[Hel][\n]The answer was cut: the model reached its output limit.\n"),
        ("", "refusal", "The model refused to answer, or its vendor's filter stopped the answer.\n"),
        ("", "end_turn", "The model answered with nothing.\n"),
        ("", "other", "The model answered with nothing.\n"),
        ("Hi", "end_turn", "[Hi][\n]"),
    ] {
        story(&[("model_output_completed", done(text, stop))], told);
    }
    let mut call = done("", "tool_use");
    call["tool_calls"] = json!([{"name": "shell"}]);
    story(&[("model_output_completed", call)], "");
}

#[test]
fn a_budget_is_told_in_its_units_with_the_command_that_raises_it() {
    let reached = |budget: &str, used: u64, limit: u64| {
        ("budget_reached", json!({"reached": {"budget": budget, "used": used, "limit": limit}}))
    };
    story(
        &[reached("money", 34_000, 30_000), reached("duration", 61_000, 60_000), reached("tool_calls", 5, 5)],
        "A budget is used up: $0.034 of $0.03. To raise it: tenure session change sess_1 --max-cost MORE\n\
         A budget is used up: 1 min of 1 min. To raise it: tenure session change sess_1 --max-time MORE\n\
         A budget is used up: 5 of 5 tool calls. To raise it: tenure session change sess_1 --max-calls MORE\n",
    );
}

#[test]
fn all_tokens_that_were_sent_are_counted() {
    assert_eq!(tokens_in(2800, 1200, 400), "4400 in (1200 read from cache, 400 written to cache)");
    assert_eq!([tokens_in(7, 0, 0), tokens_in(7, 1, 0)], ["7 in", "8 in (1 read from cache)"]);
}

#[test]
fn approvals_outcomes_and_ends() {
    let patch = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n--- /dev/null\n+++ b/y\n";
    story(
        &[
            ("approval_requested", json!({"name": "verify", "input": {"commands": ["make a", "make b"]}})),
            ("approval_granted", json!({"name": "verify", "scope": "session"})),
            ("approval_denied", json!({"name": "shell", "reason": "no"})),
            ("tool_call_started", json!({"name": "apply_patch", "input": {"patch": patch}})),
            ("tool_call_completed", json!({"name": "shell", "outcome": "unknown", "ok": false})),
            ("tool_call_completed", json!({"name": "shell", "outcome": "not_run", "ok": false, "error": "denied"})),
            (
                "turn_interrupted",
                json!({"calls": [{"name": "shell", "class": "unknown"}, {"name": "write_file", "class": "not_started"}]}),
            ),
            ("turn_expired", json!({"reached": {"budget": "steps", "limit": 8, "used": 8}})),
            ("turn_canceled", json!({"reason": "enough", "left": ["sleep (7)"]})),
            ("turn_completed", json!({"verification": "passed"})),
            ("turn_completed", json!({"verification": "not_needed"})),
            ("something_new", json!({})),
        ],
        "? verify needs a yes:  make a && make b\n  verify: approved (session)\n  shell: denied: no\n→ apply_patch  x, y\n\
         ? shell  whether it took effect is unknown; it was not run again\n✗ shell  not run: denied\n\
         The daemon was stopped in the middle of this turn. shell: unknown, write_file: not started\n\
         The turn ended at its budget: 8 of 8 steps. With a higher one it runs again: tenure session retry sess_1\nThe turn was canceled: enough; still there: sleep (7)\nVerified.\n",
    );
}

#[test]
fn the_log_view_numbers_every_event() {
    let shown = show(
        Look::PLAIN,
        Detail::Log,
        &[
            ("session_created", json!({"settings": {"workspace_path": "/w"}})),
            ("message_added", json!({"role": "user", "parts": [{"type": "text", "text": "hi"}]})),
            ("something_new", json!({})),
        ],
    );
    assert_eq!(shown, "    1  session_created  /w\n    2  message_added  user: hi\n    3  something_new  \n");
}

#[test]
fn notes_are_cut_tamed_and_coloured() {
    let look = Look { paint: Paint::Colours, raw: Raw::Tame, width: 16 };
    let events = [("tool_call_started", json!({"name": "shell", "input": {"command": "\u{1b}[2J rm -rf everything"}}))];
    assert_eq!(show(look, Detail::Story, &events), "\x1b[36m→ shell  ␛[2J r…\x1b[0m\n");
}
