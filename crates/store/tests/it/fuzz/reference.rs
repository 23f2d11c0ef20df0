//! Slow and simple readers of the store's files, to compare the real ones with. They share no code with them.

use tenure_core::{delta::Delta, ids::TurnId, time::Timestamp};
use tenure_store::{CreateKey, Snapshot};

const SUM_HEX: usize = 32;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// The whole decisions that a log starts with.
pub struct Whole {
    /// The wire JSON of each line.
    pub lines: Vec<Vec<u8>>,
    /// Where the last decision ends.
    pub end: usize,
}

pub fn whole_decisions(content: &[u8]) -> Whole {
    let mut whole = Whole { lines: vec![], end: 0 };
    let (mut decision, mut left, mut offset, mut sum) = (Vec::new(), None, 0, vec![0; 16]);
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        let Some((json, seq, more, next)) = line.strip_suffix(b"\n").and_then(|line| checked(line, &sum)) else {
            break;
        };
        if seq != (whole.lines.len() + decision.len()) as u64 + 1 || left.is_some_and(|left: u64| more != left - 1) {
            break;
        }
        (offset, sum) = (offset + line.len(), next);
        decision.push(json);
        left = Some(more);
        if more == 0 {
            whole.lines.append(&mut decision);
            whole.end = offset;
            left = None;
        }
    }
    whole
}

/// The event of a line, its number, how many lines follow it, and its sum; nothing if the sum before it does not fit.
fn checked(line: &[u8], before: &[u8]) -> Option<(Vec<u8>, u64, u64, Vec<u8>)> {
    let text = line;
    let cut = text.len().checked_sub(SUM_HEX + 10)?;
    let (covered, suffix) = text.split_at(cut);
    let hex = suffix.strip_prefix(b",\"sum\":\"")?.strip_suffix(b"\"}")?;
    let sum = blake3::hash(&[before, covered].concat()).as_bytes()[..16].to_vec();
    let spelled: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    if spelled.as_bytes() != hex {
        return None;
    }
    let (rest, more) = split_number(covered)?;
    let (rest, version) = split_number(rest.strip_suffix(b",\"more\":")?)?;
    let json = rest.strip_suffix(b",\"v\":")?;
    let after_seq = json.strip_prefix(b"{\"seq\":")?;
    let digits: Vec<u8> = after_seq.iter().copied().take_while(u8::is_ascii_digit).collect();
    let seq = String::from_utf8(digits).ok()?.parse().ok()?;
    (version == 1).then(|| ([json, b"}"].concat(), seq, more, sum))
}

fn split_number(bytes: &[u8]) -> Option<(&[u8], u64)> {
    let start = bytes.iter().rposition(|byte| !byte.is_ascii_digit())? + 1;
    Some((&bytes[..start], std::str::from_utf8(&bytes[start..]).ok()?.parse().ok()?))
}

/// The same lines with sums that fit, where there is room for one.
pub fn summed_again(content: &[u8]) -> Vec<u8> {
    let (mut out, mut sum) = (Vec::new(), vec![0; 16]);
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        let bare = line.strip_suffix(b"\n").unwrap_or(line);
        let Some(cut) = bare.len().checked_sub(SUM_HEX + 10).filter(|_| bare.ends_with(b"\"}")) else {
            out.extend_from_slice(line);
            continue;
        };
        sum = blake3::hash(&[&sum, &bare[..cut]].concat()).as_bytes()[..16].to_vec();
        let hex: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
        out.extend_from_slice(&[&bare[..cut], b",\"sum\":\"", hex.as_bytes(), b"\"}", &line[bare.len()..]].concat());
    }
    out
}

/// Where each record ends, up to the first line that is none.
pub fn records(content: &[u8], turn: TurnId) -> Vec<u64> {
    let mut ends = Vec::new();
    let mut at = 0;
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        let Some(bare) = line.strip_suffix(b"\n") else { break };
        if Delta::from_line(bare, turn).is_err() {
            break;
        }
        at += line.len() as u64;
        ends.push(at);
    }
    ends
}

/// The keys of whole lines that are not older than a day; of two with one name the later one.
pub fn fresh_keys(content: &[u8], now: Timestamp) -> Vec<CreateKey> {
    let mut keys: Vec<CreateKey> = Vec::new();
    for line in content.split_inclusive(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\n")) {
        let Ok(key) = serde_json::from_slice::<CreateKey>(line) else { continue };
        if line.len() > 64 << 10 || now.ms().saturating_sub(key.at.ms()) >= DAY_MS {
            continue;
        }
        keys.retain(|known| (&known.endpoint, &known.key) != (&key.endpoint, &key.key));
        keys.push(key);
    }
    keys
}

/// The snapshot with a sum that fits, if it has the form of one.
pub fn snapshot_summed_again(content: &[u8]) -> Vec<u8> {
    let Some((head, state)) = snapshot_parts(content) else { return content.to_vec() };
    let sum = blake3::hash(&[head, state].concat()).to_hex()[..SUM_HEX].to_owned();
    [head, b",\"sum\":\"", sum.as_bytes(), b"\",\n\"state\":", state, b"}\n"].concat()
}

fn snapshot_parts(content: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = content.iter().position(|byte| *byte == b'\n')?;
    let head = content[..line].strip_suffix(b"\",")?;
    let head = &head[..head.len().checked_sub(SUM_HEX)?];
    let state = content[line + 1..].strip_prefix(b"\"state\":")?.strip_suffix(b"}\n")?;
    Some((head.strip_suffix(b",\"sum\":\"")?, state))
}

/// Whether the snapshot's sum fits, but it speaks of a place that the log never had.
pub fn is_forged(content: &[u8], log: &[u8]) -> bool {
    let Some((head, _)) = snapshot_parts(content).filter(|_| snapshot_summed_again(content) == content) else {
        return false;
    };
    let header: serde_json::Value = serde_json::from_slice(&[head, b"}"].concat()).unwrap_or_default();
    let end = header["log_bytes"].as_u64().and_then(|end| usize::try_from(end).ok());
    let lines = end.and_then(|end| log.get(..end)).map(|log| log.split_inclusive(|byte| *byte == b'\n').count() as u64);
    lines.is_some() && header["log_seq"].as_u64() != lines
}

/// Whether this file holds just this snapshot, under a sum that fits.
pub fn is_whole_snapshot(content: &[u8], found: &Snapshot) -> bool {
    let Some((_, state)) = snapshot_parts(content) else { return false };
    snapshot_summed_again(content) == content && found.state == state
}

/// What a lock file says.
#[derive(serde::Deserialize)]
struct Holder {
    #[allow(dead_code, reason = "it must be there")]
    pid: u32,
    epoch: u64,
}

/// The epoch that a lock file names; 0 if none can be read, or none can follow it.
pub fn epoch(content: &[u8]) -> u64 {
    let mut values = serde_json::Deserializer::from_slice(&content[..content.len().min(4096)]).into_iter::<Holder>();
    values.next().and_then(Result::ok).map_or(0, |holder| holder.epoch).wrapping_add(1).saturating_sub(1)
}
