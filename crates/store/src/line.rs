//! One line of a log: the event's wire JSON, then `v`, `more` and `sum`. Pure; it never reads or writes a file.

use bytes::Bytes;
use tenure_core::{event::Event, ids::SessionId};

use crate::{Error, Result, StoredEvent};

/// The format of the lines this version writes, and the only one it reads.
const VERSION: u64 = 1;
/// The longest line, so that a reader's memory has a bound whatever it meets.
pub(crate) const LINE_BYTES_MAX: usize = 32 << 20;

/// What every line starts with.
pub(crate) const LINE_OPENS: &[u8] = b"{\"seq\":";

const SUM_BYTES: usize = 16;
const SUM_OPENS: &[u8] = b",\"sum\":\"";
const SUM_CLOSES: &[u8] = b"\"}";
/// How many bytes the sum takes at the end of a line, without the line end.
pub(crate) const SUFFIX_BYTES: usize = SUM_OPENS.len() + 2 * SUM_BYTES + SUM_CLOSES.len();

/// The hash a line ends with; each covers the one before it.
pub(crate) type Sum = [u8; SUM_BYTES];

/// What a check of a line gives, or why the line is bad.
pub(crate) type Checked<T> = std::result::Result<T, String>;

/// Where a line ends: all that is needed to check the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The last event's number; 0 before the first.
    pub seq: u64,
    /// The byte after its line end.
    pub offset: u64,
    pub sum: Sum,
}

impl Place {
    pub const START: Place = Place { seq: 0, offset: 0, sum: [0; SUM_BYTES] };
}

/// A line taken apart. Nothing of it is trusted before `follow` has checked its sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    pub seq: u64,
    /// Lines of the same decision still to come.
    pub more: u64,
    version: u64,
    pub sum: Sum,
    /// The wire JSON without its closing brace.
    body: &'a [u8],
    /// What the sum covers of this line.
    covered: &'a [u8],
}

impl<'a> Line<'a> {
    /// Takes a line (without its line end) apart; `None` if it has not the shape of one.
    pub fn parse(bytes: &'a [u8]) -> Option<Line<'a>> {
        let cut = bytes.len().checked_sub(SUFFIX_BYTES)?;
        let (covered, suffix) = bytes.split_at(cut);
        let hex = suffix.strip_prefix(SUM_OPENS)?.strip_suffix(SUM_CLOSES)?;
        let (rest, more) = number_before_end(covered)?;
        let (rest, version) = number_before_end(rest.strip_suffix(b",\"more\":")?)?;
        let body = rest.strip_suffix(b",\"v\":")?;
        Some(Line { seq: seq_of(bytes)?, more, version, sum: from_hex(hex)?, body, covered })
    }

    /// Checks that this line follows `place`, and gives the place where it ends.
    pub fn follow(&self, place: &Place) -> Checked<Place> {
        if sum_with(&place.sum, self.covered) != self.sum {
            return Err("its checksum does not fit".into());
        }
        if self.seq != place.seq + 1 {
            return Err(format!("it is numbered {}, not {}", self.seq, place.seq + 1));
        }
        if self.version != VERSION {
            return Err(format!("it has format {}, and this version reads format {VERSION}", self.version));
        }
        Ok(self.end(place.offset))
    }

    /// The place where this line ends if it starts at `offset`.
    pub fn end(&self, offset: u64) -> Place {
        let bytes = self.covered.len() + SUFFIX_BYTES + 1;
        Place { seq: self.seq, offset: offset + bytes as u64, sum: self.sum }
    }

    /// The event's wire JSON, as it was written.
    pub fn json(&self) -> Vec<u8> {
        let mut json = Vec::with_capacity(self.body.len() + 1);
        json.extend_from_slice(self.body);
        json.push(b'}');
        json
    }
}

/// The number at the start of a line, which every line has there.
pub(crate) fn seq_of(bytes: &[u8]) -> Option<u64> {
    let rest = bytes.strip_prefix(LINE_OPENS)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    number(&rest[..digits])
}

/// The sum that stands in the last bytes before `offset`, given those bytes.
pub(crate) fn sum_at_end(bytes: &[u8]) -> Option<Sum> {
    let line = bytes.strip_suffix(b"\n")?;
    let suffix = line.get(line.len().checked_sub(SUFFIX_BYTES)?..)?;
    suffix_sum(suffix)
}

/// How many bytes `sum_at_end` needs.
pub(crate) const SUM_AT_END_BYTES: usize = SUFFIX_BYTES + 1;

/// One decision as bytes for one write, and the place where it will end.
pub(crate) fn encode(from: &Place, session: SessionId, events: &[Event]) -> Result<(Vec<u8>, Place)> {
    let mut bytes = Vec::new();
    let mut place = *from;
    for (index, event) in events.iter().enumerate() {
        if event.seq != place.seq + 1 || event.session_id != session {
            let found =
                format!("event {} of {} cannot follow event {} of {session}", event.seq, event.session_id, place.seq);
            return Err(Error::Other(found));
        }
        let start = bytes.len();
        let failed = |why: String| Error::Other(format!("event {} cannot be written: {why}", event.seq));
        serde_json::to_writer(&mut bytes, event).map_err(|error| failed(error.to_string()))?;
        if bytes.pop() != Some(b'}') || bytes[start..].contains(&b'\n') {
            return Err(failed("it is not one object on one line".into()));
        }
        place = seal(&mut bytes, start, &place, (events.len() - 1 - index) as u64);
        let length = bytes.len() - start;
        if length > LINE_BYTES_MAX {
            return Err(failed(format!("it has {length} bytes, and {LINE_BYTES_MAX} are the limit")));
        }
    }
    Ok((bytes, place))
}

/// Ends the line that starts at `start` and lacks only its closing brace. It follows `place`; gives the place behind it.
fn seal(bytes: &mut Vec<u8>, start: usize, place: &Place, more: u64) -> Place {
    bytes.extend_from_slice(format!(",\"v\":{VERSION},\"more\":{more}").as_bytes());
    let sum = sum_with(&place.sum, &bytes[start..]);
    bytes.extend_from_slice(&seal_suffix(&sum));
    bytes.push(b'\n');
    Place { seq: place.seq + 1, offset: place.offset + (bytes.len() - start) as u64, sum }
}

/// How a line with this sum ends.
pub(crate) fn seal_suffix(sum: &Sum) -> Vec<u8> {
    [SUM_OPENS, hex_of(sum).as_bytes(), SUM_CLOSES].concat()
}

/// The sum in the end of a line, if that has its form.
pub(crate) fn suffix_sum(suffix: &[u8]) -> Option<Sum> {
    from_hex(suffix.strip_prefix(SUM_OPENS)?.strip_suffix(SUM_CLOSES)?)
}

/// Makes the very lines of a log from its events, so that it can be taken elsewhere byte for byte.
#[derive(Debug, Clone)]
pub struct LogWriter {
    place: Place,
}

impl LogWriter {
    /// At the start of a log.
    pub fn new() -> Self {
        Self { place: Place::START }
    }

    /// Adds the line of the next event to `lines`.
    pub fn push(&mut self, event: &StoredEvent, lines: &mut Vec<u8>) {
        let start = lines.len();
        lines.extend_from_slice(event.json.strip_suffix(b"}").unwrap_or(&event.json));
        self.place = seal(lines, start, &self.place, event.more);
    }

    /// How many bytes were made so far.
    pub fn bytes(&self) -> u64 {
        self.place.offset
    }

    /// The last line's sum, which stands for all lines up to it.
    pub fn sum(&self) -> String {
        hex_of(&self.place.sum)
    }
}

impl Default for LogWriter {
    fn default() -> Self {
        Self::new()
    }
}

/// Reads lines that were written elsewhere: each must follow the one before it.
#[derive(Debug)]
pub struct LogReader {
    /// The end of the last line.
    pub(crate) place: Place,
    /// Lines still to come of the decision under way.
    left: u64,
}

impl LogReader {
    /// At the start of a log.
    pub fn new() -> Self {
        Self::at(Place::START)
    }

    /// Behind a whole decision.
    pub(crate) fn at(place: Place) -> Self {
        Self { place, left: 0 }
    }

    /// Takes in whole lines and gives the events in them.
    pub fn take(&mut self, lines: &[u8]) -> std::result::Result<Vec<StoredEvent>, String> {
        let Some(lines) = lines.strip_suffix(b"\n") else { return Err("a line has no end".into()) };
        let mut events = Vec::new();
        for bytes in lines.split(|byte| *byte == b'\n') {
            let failed = |why: &str| format!("line {}: {why}", self.place.seq + 1);
            let line = Line::parse(bytes).ok_or_else(|| failed("it has not the form of a line"))?;
            let next = line.follow(&self.place).map_err(|why| failed(&why))?;
            if self.left > 0 && line.more != self.left - 1 {
                return Err(failed("it does not continue its decision"));
            }
            events.push(StoredEvent { seq: line.seq, json: Bytes::from(line.json()), more: line.more });
            (self.place, self.left) = (next, line.more);
        }
        Ok(events)
    }

    /// Whether it ends with a whole decision.
    pub fn is_whole(&self) -> bool {
        self.place.seq > 0 && self.left == 0
    }

    /// The last line's sum, which stands for all lines up to it.
    pub fn sum(&self) -> String {
        hex_of(&self.place.sum)
    }
}

impl Default for LogReader {
    fn default() -> Self {
        Self::new()
    }
}

pub(crate) fn sum_with(before: &Sum, covered: &[u8]) -> Sum {
    let hash = blake3::Hasher::new().update(before).update(covered).finalize();
    let mut sum = [0; SUM_BYTES];
    sum.copy_from_slice(&hash.as_bytes()[..SUM_BYTES]);
    sum
}

pub(crate) fn hex_of(sum: &Sum) -> String {
    use std::fmt::Write;
    sum.iter().fold(String::with_capacity(2 * SUM_BYTES), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

pub(crate) fn from_hex(hex: &[u8]) -> Option<Sum> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        // One sum has one spelling: capitals are damage.
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if hex.len() != 2 * SUM_BYTES {
        return None;
    }
    let mut sum = [0; SUM_BYTES];
    for (byte, pair) in sum.iter_mut().zip(hex.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(sum)
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Splits off the number that some bytes end with.
fn number_before_end(bytes: &[u8]) -> Option<(&[u8], u64)> {
    let digits = bytes.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (rest, digits) = bytes.split_at(bytes.len() - digits);
    Some((rest, number(digits)?))
}
