//! Reads Server-Sent Events as the standard has them, from bytes cut anywhere. It knows nothing of sessions, cursors or models.

use std::collections::VecDeque;

/// One event may not be longer than this: a peer that never ends a line must not fill the memory.
pub const EVENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The id, where this very event carries one.
    pub id: Option<String>,
    /// The `event` field; `message` where there is none.
    pub event: String,
    pub data: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is longer than {EVENT_BYTES_MAX} bytes")]
pub struct TooLong;

/// Turns bytes into events. An event that is not closed by an empty line is never given out.
#[derive(Debug, Default)]
pub struct Parser {
    line: Vec<u8>,
    /// The last byte was a CR: an LF right after it belongs to the same line end.
    after_cr: bool,
    /// A byte order mark may only stand before the first line.
    past_first_line: bool,
    open: OpenFrame,
    ready: VecDeque<Frame>,
}

#[derive(Debug, Default)]
struct OpenFrame {
    id: Option<String>,
    event: String,
    data: String,
    /// Whether there was a `data` line, be it an empty one.
    has_data: bool,
}

impl Parser {
    /// Takes the next bytes, wherever they were cut.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if std::mem::take(&mut self.after_cr) && rest[0] == b'\n' {
                rest = &rest[1..];
                continue;
            }
            match rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
                None => {
                    self.line.extend_from_slice(rest);
                    rest = &[];
                }
                Some(end) => {
                    self.line.extend_from_slice(&rest[..end]);
                    self.after_cr = rest[end] == b'\r';
                    rest = &rest[end + 1..];
                    self.end_line();
                }
            }
            if self.line.len() + self.open.data.len() > EVENT_BYTES_MAX {
                return Err(TooLong);
            }
        }
        Ok(())
    }

    /// The next whole event.
    pub fn take(&mut self) -> Option<Frame> {
        self.ready.pop_front()
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let bytes = match std::mem::replace(&mut self.past_first_line, true) {
            false => line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line),
            true => &line,
        };
        // A line is decoded when it is whole, so a character cut in two by the network is never harmed.
        let text = String::from_utf8_lossy(bytes);
        if text.is_empty() {
            self.end_frame();
            return;
        }
        let (field, value) = text.split_once(':').unwrap_or((&text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.open.event = value.to_owned(),
            "data" => self.open.add_data(value),
            "id" if !value.contains('\0') => self.open.id = Some(value.to_owned()),
            // Comments, `retry` (we have a backoff of our own) and unknown fields.
            _ => {}
        }
    }

    fn end_frame(&mut self) {
        let open = std::mem::take(&mut self.open);
        if !open.has_data {
            return;
        }
        let event = if open.event.is_empty() { "message".to_owned() } else { open.event };
        self.ready.push_back(Frame { id: open.id, event, data: open.data });
    }
}

impl OpenFrame {
    fn add_data(&mut self, value: &str) {
        if std::mem::replace(&mut self.has_data, true) {
            self.data.push('\n');
        }
        self.data.push_str(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(id: Option<&str>, event: &str, data: &str) -> Frame {
        Frame { id: id.map(str::to_owned), event: event.into(), data: data.into() }
    }

    fn parse(chunks: &[&[u8]]) -> Vec<Frame> {
        let mut parser = Parser::default();
        let mut all = vec![];
        for chunk in chunks {
            parser.push(chunk).unwrap();
            all.extend(std::iter::from_fn(|| parser.take()));
        }
        all
    }

    const STREAM: &str = "\u{feff}: hello\n\nid: 1\nevent: turn_started\ndata: {\"a\":\"ä€😀\"}\n\n\
        id: 1.20\r\nevent: model_output_delta\r\ndata: one\r\ndata:  two\r\ndata\r\n\r\n\
        retry: 5\rdata:x\r\r: keep-alive\n\nid: 7\n\nevent: only\n\nnonsense: 1\ndata: last\n\nid: 9\ndata: not closed\n";

    fn expected() -> Vec<Frame> {
        vec![
            frame(Some("1"), "turn_started", "{\"a\":\"ä€😀\"}"),
            frame(Some("1.20"), "model_output_delta", "one\n two\n"),
            frame(None, "message", "x"),
            frame(None, "message", "last"),
        ]
    }

    #[test]
    fn a_stream_is_read_as_the_standard_says() {
        assert_eq!(parse(&[STREAM.as_bytes()]), expected());
    }

    #[test]
    fn a_stream_cut_at_any_byte_reads_the_same() {
        let bytes = STREAM.as_bytes();
        for at in 0..=bytes.len() {
            assert_eq!(parse(&[&bytes[..at], &bytes[at..]]), expected(), "cut at {at}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(parse(&single), expected());
    }

    #[test]
    fn an_id_with_a_null_is_ignored() {
        assert_eq!(parse(&[b"id: 1\0\ndata: a\n\n"]), vec![frame(None, "message", "a")]);
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut parser = Parser::default();
        let chunk = vec![b'x'; 1 << 20];
        let refused = (0..=EVENT_BYTES_MAX / chunk.len()).find_map(|_| parser.push(&chunk).err());
        assert_eq!(refused, Some(TooLong));
    }
}
