//! Every event type there is reads back as it was written, and the envelope is the one of the spec.

use serde_json::{Value, json, value::to_raw_value};
use tenure_core::event::{Body, Event};

use crate::world::call_id;

fn sample(wire_type: &str) -> Value {
    let (turn, message, call) =
        ("turn_01JGFJJZ00041061050R3GG28A", "msg_01JGFJJZ00041061050R3GG28A", call_id("c1").to_string());
    let child = "sess_01JGFJJZ00041061050R3GG28A";
    let refs = json!([{"id": message, "seq": 2}]);
    let spent = json!({
        "steps": 1, "tool_calls": 2, "active_ms": 3,
        "usage": {"input_tokens": 1, "output_tokens": 2, "cache_read_tokens": 3, "cache_write_tokens": 4},
        "micro_usd": 5, "unpriced": true,
    });
    let usage = json!({"input_tokens": 1, "output_tokens": 2, "cache_read_tokens": 3, "cache_write_tokens": 4});
    let breach = json!({"budget": "tokens", "limit": 5, "used": 6});
    let time = "2025-01-01T00:00:00.120Z";
    match wire_type {
        "session_created" => {
            let created = crate::world::plain();
            json!({"settings": created.settings, "policy": created.policy, "budgets": created.budgets})
        }
        "session_updated" => json!({"title": "t", "labels": ["a"], "model": "m", "workspace_path": "/w"}),
        "session_forked" => json!({
            "from": child, "at_seq": 7, "title": "t", "model": "m", "workspace_path": "/w", "labels": ["a"],
        }),
        "session_completed" | "session_canceled" => json!({"reason": "done"}),
        "session_failed" => json!({"code": "log_damaged", "message": "m"}),
        "session_expired" => json!({"idle_ms": 5}),
        "message_added" => json!({
            "message_id": message, "role": "user", "delivery": "queue", "auto_run": true,
            "parts": [{"type": "text", "text": "hi"}, {"type": "image", "ref": "attachments/a.png", "mime_type": "image/png"}],
        }),
        "message_delivered" => json!({"message_id": message, "step": 2}),
        "attachment_added" => {
            json!({"ref": "attachments/a.png", "mime_type": "image/png", "bytes": 3, "digest": "d"})
        }
        "turn_queued" => json!({"messages": refs}),
        "turn_started" => json!({"messages": refs, "retry_of": turn, "model": "m"}),
        "turn_completed" => {
            json!({"message_id": message, "spent": spent, "cost_micro_usd": null, "verification": "passed"})
        }
        "turn_failed" => json!({"code": "auth", "message": "m", "spent": spent, "cost_micro_usd": 5}),
        "turn_canceled" => json!({"reason": "r", "left": ["pid 7"], "spent": spent, "cost_micro_usd": 5}),
        "turn_expired" => json!({"reached": breach, "spent": spent, "cost_micro_usd": 5}),
        "turn_interrupted" => json!({"calls": [{"tool_call_id": call, "name": "shell", "class": "unknown"}]}),
        "turn_resumed" => json!({"automatic": true}),
        "cancel_requested" => json!({"reason": "r", "end_session": true}),
        "context_seeded" => json!({
            "source": "new", "files": [{"path": "AGENTS.md", "text": "x", "truncated": true}],
            "verify": {"source": "agents_md", "commands": ["make test"]},
            "bundle": {
                "git": "on main", "map": "a.rs:\n  1: fn a()\n", "left_out": ["no map"],
                "chunks": [{"path": "a.rs", "first_line": 1, "last_line": 2, "text": "fn a() {\n}\n"}],
            },
        }),
        "tools_offered" => json!({
            "tools": [{
                "source": "mcp:docs", "name": "mcp__docs__look", "description": "d",
                "input_schema": {"type": "object"}, "kind": "network",
            }],
        }),
        "model_output_completed" => json!({
            "message_id": message, "step": 1, "attempt": 2, "model": "m", "text": "t",
            "thinking": [{"text": "hm", "signature": "s"}],
            "tool_calls": [{"id": call, "provider_id": "p", "name": "shell", "kind": "exec", "input": {"command": "ls"}, "subject": "ls"}],
            "stop_reason": "tool_use", "usage": usage, "cost_micro_usd": null,
        }),
        "model_attempt_failed" => json!({
            "step": 1, "attempt": 1, "reason": {"kind": "rate_limited", "message": "m", "retry_after_ms": 5},
            "text": "t", "thinking": "hm", "usage": usage, "cost_micro_usd": 4, "retry_at": time,
        }),
        "tool_call_started" => json!({
            "tool_call_id": call, "name": "write_file", "kind": "write", "input": {"path": "a"}, "runner": "local",
            "origin": "model", "run": 1,
            "intent": {"files": [{"path": "a", "before": null, "after": "af", "old_bytes": "b", "mode": 420}]},
        }),
        "tool_call_completed" => json!({
            "tool_call_id": call, "name": "shell", "origin": "verify_policy", "outcome": "finished", "ok": false,
            "parts": [{"type": "text", "text": "no"}], "artifacts": ["art", {"ref": "artifacts/t/a.txt", "bytes": 3, "digest": "d"}], "error": "exit 1",
            "detail": {"exit_code": 1}, "duration_ms": 9,
        }),
        "approval_requested" => json!({
            "tool_call_id": call, "name": "shell", "kind": "exec", "input": {"command": "ls"}, "subject": "ls",
            "origin": "model", "expires_at": time, "proposed": {"diff": "+x", "digest": "d"},
        }),
        "review_started" => json!({
            "tool_call_id": call, "name": "write_file", "model": "m", "proposed": {"diff": "+x", "digest": "d"},
        }),
        "review_completed" => json!({
            "tool_call_id": call, "name": "write_file", "verdict": "deny", "reason": "r", "model": "m",
            "usage": usage, "cost_micro_usd": null,
        }),
        "review_failed" => json!({
            "tool_call_id": call, "name": "write_file", "attempt": 1, "reason": {"kind": "server", "message": "no"},
            "usage": usage, "cost_micro_usd": 3, "begun": true, "retry_at": time,
        }),
        "approval_granted" | "approval_denied" => {
            json!({"tool_call_id": call, "name": "shell", "scope": "session", "reason": "r"})
        }
        "approval_expired" => json!({"tool_call_id": call, "name": "shell"}),
        "budget_reached" => json!({"reached": breach}),
        "budget_raised" => json!({"budgets": tenure_core::budget::Budgets::default()}),
        "child_started" => json!({"child": child, "tool_call_id": call}),
        "child_waiting" => json!({"child": child, "tool_call_id": call, "name": "shell"}),
        "child_settled" => json!({"child": child, "ok": true, "cost_micro_usd": null}),
        "event_lost" => json!({"reason": "r"}),
        "compaction_started" => json!({"trigger": "threshold", "blocking": true, "tokens": 900}),
        "context_compacted" => json!({
            "trigger": "overflow", "summary": "They spoke of ${secret:A}.", "request": "mend it", "secrets": ["A"],
            "kept_from": 7, "context_from": 6, "tokens_before": 900, "tokens_after": 100, "model": "m",
            "usage": {"input_tokens": 1, "output_tokens": 2}, "cost_micro_usd": null,
        }),
        "compaction_failed" => json!({
            "reason": {"kind": "server", "message": "no"}, "usage": {"input_tokens": 1, "output_tokens": 2},
            "cost_micro_usd": 3, "retry_at": "2025-01-01T00:00:01.000Z",
        }),
        "checkpoint_created" => json!({
            "workspace_path": "/w", "started_at": time, "files": [{
                "path": "d/a", "before": "b", "after": null, "old_bytes": "artifacts/o", "mode": 420, "mode_after": 420,
                "real": "e/a",
            }],
            "folders": ["d"], "unknown": [{"tool_call_id": call, "name": "write_file", "paths": ["x"]}],
            "commands": true, "incomplete": true, "secrets": ["A"],
        }),
        "undo_requested" => json!({"turn_id": "turn_01JGFJJZ00041061050R3GG28A", "checkpoint_seq": 4}),
        "restore_started" => json!({
            "turn_id": "turn_01JGFJJZ00041061050R3GG28A", "intent": {"files": [{"path": "a", "before": null, "after": "b"}]},
            "not_undone": ["log"], "more_not_undone": true,
        }),
        "workspace_restored" => json!({
            "turn_id": "turn_01JGFJJZ00041061050R3GG28A", "outcome": "refused", "restored": ["a"],
            "refused": [{"path": "a", "why": "w"}], "not_undone": ["log"], "more_not_undone": true,
            "unknown": [{"tool_call_id": call, "name": "write_file", "paths": ["x"]}],
        }),
        other => panic!("no sample of {other}: add one"),
    }
}

#[test]
fn every_event_type_reads_back_as_it_was() {
    for wire_type in Body::WIRE_TYPES {
        let data = sample(wire_type);
        let body = Body::from_json(wire_type, &to_raw_value(&data).unwrap())
            .unwrap_or_else(|error| panic!("{wire_type}: {error}"));
        assert_eq!(body.wire_type(), *wire_type);
        assert_eq!(serde_json::to_value(&body).unwrap(), data, "{wire_type}");
        let line = json!({
            "seq": 7, "ts": "2025-01-01T00:00:00.000Z", "session_id": "sess_01JGFJJZ00041061050R3GG28A",
            "turn_id": "turn_01JGFJJZ00041061050R3GG28A", "type": wire_type,
            "actor": {"kind": "user", "id": "ann", "surface": "http"}, "data": data,
        });
        let event = Event::from_json(&line.to_string()).unwrap();
        assert_eq!(serde_json::to_value(&event).unwrap(), line, "{wire_type}");
    }
}

#[test]
fn names_are_snake_case_and_once() {
    let counts = crate::world::tally(Body::WIRE_TYPES);
    assert!(counts.values().all(|count| *count == 1));
    for name in Body::WIRE_TYPES {
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
    }
    let of_s1 = [
        "session_created",
        "message_added",
        "turn_started",
        "model_output_completed",
        "tool_call_started",
        "tool_call_completed",
        "approval_requested",
        "approval_granted",
        "approval_denied",
        "turn_completed",
        "session_completed",
        "session_failed",
        "session_canceled",
    ];
    for name in of_s1 {
        assert!(Body::WIRE_TYPES.contains(&name), "{name} of S1 keeps its name");
    }
}

#[test]
fn an_unknown_type_is_an_error_that_names_it() {
    let error = Body::from_json("turn_sung", &to_raw_value(&json!({})).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "event type 'turn_sung' is not known to this version");
}
