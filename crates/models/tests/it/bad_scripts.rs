//! What people are told of a script that is wrong: where, and what.

use tenure_models::scripted::parse;

fn check(script: &str, expected: &str) {
    let problem = parse(script).expect_err(script);
    assert_eq!(problem.to_string(), expected, "{script}");
}

fn check_action(action: &str, expected: &str) {
    check(&format!(r#"{{"steps": [{{"do": [{action}]}}]}}"#), &format!("step 1, action 1: {expected}"));
}

#[test]
fn the_script_as_a_whole() {
    check("", "EOF while parsing a value at line 1 column 0");
    check("{\n  \"steps\": [],,\n}", "key must be a string at line 2 column 15");
    check("{}", "missing field `steps` at line 1 column 2");
    check(
        r#"{"steps": [], "stps": 1}"#,
        "unknown field `stps`, expected one of `name`, `steps`, `after`, `price`, `takes`, `patience`, `window`, \
         `summary`, `review` \
         at line 1 column 20",
    );
    check(
        r#"{"steps": [], "after": "nap"}"#,
        "unknown variant `nap`, expected one of `echo`, `repeat`, `stop` at line 1 column 28",
    );
    check(r#"{"steps": [], "after": "repeat"}"#, "`after` is `repeat`, but there is no step to repeat");
    check(
        r#"{"steps": [], "takes": ["smell"]}"#,
        "unknown variant `smell`, expected one of `image`, `audio`, `file` at line 1 column 31",
    );
    check(
        r#"{"steps": [], "price": "cheap"}"#,
        "price: is \"unknown\", or an object with `input_per_mtok_usd` and `output_per_mtok_usd`",
    );
    check(r#"{"steps": [], "price": {"input_per_mtok_usd": 1}}"#, "price: missing field `output_per_mtok_usd`");
    check(
        r#"{"steps": [], "price": {"input_per_mtok_usd": -1, "output_per_mtok_usd": 1}}"#,
        "price: a price is not negative",
    );
}

#[test]
fn steps() {
    check(r#"{"steps": [{"do": []}, {}]}"#, "step 2: needs exactly one of `do`, `attempts` and `cases`");
    check(r#"{"steps": [{"do": [], "cases": []}]}"#, "step 1: needs exactly one of `do`, `attempts` and `cases`");
    check(r#"{"steps": [{"attempts": []}]}"#, "step 1: `attempts` is empty");
    check(r#"{"steps": [{"cases": []}]}"#, "step 1: `cases` is empty");
    check(r#"{"steps": [{"does": []}]}"#, "step 1: unknown field `does`, expected one of `do`, `attempts`, `cases`");
    check(
        r#"{"steps": [{"cases": [{"do": []}, {"seen": "x", "do": []}]}]}"#,
        "step 1, case 2: is never played: the case before it has no `seen` and always fits",
    );
    check(
        r#"{"steps": [{"attempts": [{"do": []}, {"do": [{"text": "a"}, {"text": 1}]}]}]}"#,
        "step 1, attempt 2, action 2: invalid type: integer `1`, expected a string",
    );
    check(
        r#"{"steps": [{"do": [{"drop": true}, {"text": "a"}]}]}"#,
        "step 1, action 2: is never played: the action before it ends the stream",
    );
}

#[test]
fn actions() {
    check_action(r#""hello""#, "is not an object such as {\"text\": \"…\"}");
    check_action(
        r#"{"txt": "a"}"#,
        "is none of `text`, `thinking`, `call`, `wait_for`, `keep_alive`, `usage`, `stop_reason`, `error`, `drop`, \
         `stall`, `pause_ms`",
    );
    check_action(
        r#"{"text": "a", "call": {"name": "x", "input": {}}}"#,
        "is both `text` and `call`; write two actions",
    );
    check_action(
        r#"{"text": "a", "chunks": 1}"#,
        "unknown field `chunks`, expected one of `text`, `chunk`, `pause_ms`",
    );
    check_action(r#"{"text": "a", "chunk": 0}"#, "`chunk` is at least 1");
    check_action(r#"{"text": "a", "pause_ms": 5}"#, "`pause_ms` falls between chunks and needs `chunk` beside it");
    check_action(r#"{"pause_ms": -5}"#, "invalid value: integer `-5`, expected u64");
    check_action(r#"{"call": {"name": "x"}}"#, "call: needs exactly one of `input` and `arguments`");
    check_action(r#"{"stall": false}"#, "`stall` can only be true");
    check_action(r#"{"stall": true, "pause_ms": 1}"#, "unknown field `pause_ms` beside `stall`");
    check_action(
        r#"{"usage": {"tokens": 1}}"#,
        "usage: unknown field `tokens`, expected one of `input_tokens`, `output_tokens`, `cache_read_tokens`, \
         `cache_write_tokens`",
    );
    check_action(
        r#"{"stop_reason": "done"}"#,
        "stop_reason: unknown variant `done`, expected one of `end_turn`, `tool_use`, `max_tokens`, `refusal`, `other`",
    );
    check_action(r#"{"error": {"kind": "server"}}"#, "error: missing field `message`");
}
