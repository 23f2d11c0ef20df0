//! A row as a line of `index.ndjson`: lean, since every turn writes one.

use std::{io, sync::Arc};

use serde::{Deserialize, Serialize};
use tenure_core::{
    budget::Spent,
    ids::{SessionId, TurnId},
    model::Usage,
    time::Timestamp,
};

use crate::{Row, seal};

#[derive(Serialize, Deserialize)]
struct RowLine {
    id: SessionId,
    /// Left out where it is the time at which the id was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created_at: Option<Timestamp>,
    updated_at: Timestamp,
    status: Arc<str>,
    workspace_path: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_turn_id: Option<TurnId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    role: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    labels: Box<[Arc<str>]>,
    /// Steps, tool calls, milliseconds, tokens in, out, read from and written to caches, millionths of a dollar, and 1
    /// where a price is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spent: Option<[u64; 9]>,
}

pub(super) fn line_of(row: &Row) -> io::Result<Vec<u8>> {
    let made = Timestamp::from_ms(row.id.ulid().timestamp_ms());
    let line = RowLine {
        id: row.id,
        created_at: Some(row.created_at).filter(|at| *at != made),
        updated_at: row.updated_at,
        status: row.status.clone(),
        workspace_path: row.workspace_path.clone(),
        title: row.title.clone(),
        last_turn_id: row.last_turn_id,
        role: row.role.clone(),
        labels: row.labels.clone(),
        spent: (row.spent != Spent::default()).then(|| packed(&row.spent)),
    };
    let mut line = serde_json::to_vec(&line)?;
    seal::put(&mut line);
    line.push(b'\n');
    Ok(line)
}

/// What a line says.
pub(crate) enum Said {
    Row(Box<Row>),
    /// The session was deleted, and all rows of it before this line.
    Purged(SessionId),
}

/// What such a line starts with, so that rows need not be read twice.
const PURGED_OPENS: &[u8] = b"{\"purged\":";

#[derive(Serialize, Deserialize)]
struct PurgedLine {
    purged: SessionId,
}

pub(super) fn purged(session: SessionId) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(&PurgedLine { purged: session })?;
    seal::put(&mut line);
    line.push(b'\n');
    Ok(line)
}

/// `None`: the line is none of the listing, or a damaged one.
pub(crate) fn read(line: &[u8]) -> Option<Said> {
    if seal::check(line).is_bad() {
        return None;
    }
    match line.starts_with(PURGED_OPENS) {
        true => serde_json::from_slice::<PurgedLine>(line).ok().map(|line| Said::Purged(line.purged)),
        false => row(line).map(|row| Said::Row(Box::new(row))),
    }
}

fn row(line: &[u8]) -> Option<Row> {
    let line: RowLine = serde_json::from_slice(line).ok()?;
    Some(Row {
        id: line.id,
        created_at: line.created_at.unwrap_or(Timestamp::from_ms(line.id.ulid().timestamp_ms())),
        updated_at: line.updated_at,
        status: line.status,
        workspace_path: line.workspace_path,
        title: line.title,
        last_turn_id: line.last_turn_id,
        role: line.role,
        labels: line.labels,
        spent: line.spent.map(unpacked).unwrap_or_default(),
    })
}

fn packed(spent: &Spent) -> [u64; 9] {
    let Spent { steps, tool_calls, active_ms, usage, micro_usd, unpriced } = *spent;
    let Usage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens } = usage;
    let unpriced = u64::from(unpriced);
    [
        steps,
        tool_calls,
        active_ms,
        input_tokens,
        output_tokens,
        cache_read_tokens,
        cache_write_tokens,
        micro_usd,
        unpriced,
    ]
}

fn unpacked(numbers: [u64; 9]) -> Spent {
    let [
        steps,
        tool_calls,
        active_ms,
        input_tokens,
        output_tokens,
        cache_read_tokens,
        cache_write_tokens,
        micro_usd,
        unpriced,
    ] = numbers;
    let usage = Usage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens };
    Spent { steps, tool_calls, active_ms, usage, micro_usd, unpriced: unpriced != 0 }
}
