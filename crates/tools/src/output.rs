//! What a command printed: whole characters for those who watch, head and tail for the model, all of it up to a limit
//! for the artifact. It never holds more than that limit.

use std::collections::VecDeque;

use crate::OUTPUT_KEPT_MAX;

/// The beginning of a text, cut at a character with a note, when it is too long.
pub(crate) fn head_of(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    const NOTE: &str = "\n[cut here]\n";
    let end = text.floor_char_boundary(bytes_max.saturating_sub(NOTE.len()));
    format!("{}{NOTE}", &text[..end])
}

/// Turns bytes into text without cutting a character at a chunk's border.
#[derive(Default)]
pub(crate) struct Decoder {
    /// The beginning of a character whose rest has not come yet.
    held: Vec<u8>,
}

impl Decoder {
    pub(crate) fn push(&mut self, chunk: &[u8]) -> String {
        self.held.extend_from_slice(chunk);
        let whole = self.held.len() - incomplete_tail(&self.held);
        let text = String::from_utf8_lossy(&self.held[..whole]).into_owned();
        self.held.drain(..whole);
        text
    }

    pub(crate) fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned()
    }
}

/// How many bytes at the end begin a character that is not whole.
fn incomplete_tail(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(3);
    for at in (from..bytes.len()).rev() {
        match bytes[at] {
            // Inside a character; its first byte stands further ahead.
            0x80..=0xbf => {}
            0xc2..=0xf4 => {
                let tail = &bytes[at..];
                let cut = std::str::from_utf8(tail).is_err_and(|error| error.error_len().is_none());
                return if cut { tail.len() } else { 0 };
            }
            _ => return 0,
        }
    }
    0
}

/// One command's output.
pub(crate) struct Capture {
    /// The beginning, up to the limit.
    kept: Vec<u8>,
    /// The end, for the model.
    tail: VecDeque<u8>,
    tail_max: usize,
    total: u64,
    shown: Decoder,
}

impl Capture {
    /// `tail_max`: how much of the end is kept when the middle has to go.
    pub(crate) fn new(tail_max: usize) -> Self {
        Self { kept: vec![], tail: VecDeque::new(), tail_max, total: 0, shown: Decoder::default() }
    }

    /// Takes a chunk; returns what a watcher is shown of it.
    pub(crate) fn push(&mut self, chunk: &[u8]) -> String {
        let room = OUTPUT_KEPT_MAX - self.kept.len();
        let fits = &chunk[..chunk.len().min(room)];
        self.kept.extend_from_slice(fits);
        self.total += chunk.len() as u64;
        let new = &chunk[chunk.len().saturating_sub(self.tail_max)..];
        self.tail.extend(new);
        self.tail.drain(..self.tail.len().saturating_sub(self.tail_max));
        let mut text = self.shown.push(fits);
        if fits.len() < chunk.len() && room > 0 {
            text.push_str(&self.shown.finish());
            text.push_str(&format!("\n[output beyond {} MiB is not kept]\n", OUTPUT_KEPT_MAX >> 20));
        }
        text
    }

    /// What a watcher has not been shown yet, at the end.
    pub(crate) fn finish(&mut self) -> String {
        self.shown.finish()
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The whole text if it fits, else its head and tail around a note that says where the whole is.
    pub(crate) fn bounded(&self, bytes_max: usize, artifact: &str) -> Bounded {
        // Marking bad bytes makes a text longer, never shorter, so nothing further on could be shown anyway.
        let start = String::from_utf8_lossy(&self.kept[..self.kept.len().min(bytes_max)]);
        if self.total <= bytes_max as u64 && start.len() <= bytes_max {
            return Bounded { text: start.into_owned(), whole_fits: true };
        }
        let note = self.note(artifact);
        let half = bytes_max.saturating_sub(note.len()) / 2;
        let head = &start[..start.floor_char_boundary(half)];
        let (front, back) = self.tail.as_slices();
        let tail = [front, back].concat();
        let tail = String::from_utf8_lossy(&tail);
        let tail = &tail[tail.ceil_char_boundary(tail.len().saturating_sub(half))..];
        Bounded { text: format!("{head}{note}{tail}"), whole_fits: false }
    }

    fn note(&self, artifact: &str) -> String {
        let dropped = self.total - self.kept.len() as u64;
        match dropped {
            0 => format!("\n[… {} bytes in all; the whole is in {artifact} …]\n", self.total),
            _ => {
                format!("\n[… {} bytes in all, the last {dropped} not kept; the rest is in {artifact} …]\n", self.total)
            }
        }
    }

    pub(crate) fn into_kept(self) -> Vec<u8> {
        self.kept
    }
}

pub(crate) struct Bounded {
    pub(crate) text: String,
    pub(crate) whole_fits: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn chunks_cut_anywhere_show_the_same_text(bytes: Vec<u8>, text: String, cuts: Vec<prop::sample::Index>) {
            for whole in [bytes, text.into_bytes()] {
                let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(whole.len() + 1)).collect();
                at.extend([0, whole.len()]);
                at.sort_unstable();
                let mut decoder = Decoder::default();
                let mut shown: String = at.windows(2).map(|pair| decoder.push(&whole[pair[0]..pair[1]])).collect();
                shown.push_str(&decoder.finish());
                prop_assert_eq!(shown, String::from_utf8_lossy(&whole));
            }
        }

        #[test]
        fn a_bounded_text_keeps_its_bound_its_head_and_its_tail(body in "[a-zä€😀]{0,400}", max in 150usize..300) {
            let mut capture = Capture::new(max);
            for chunk in body.as_bytes().chunks(7) {
                capture.push(chunk);
            }
            let bounded = capture.bounded(max, "artifacts/x.txt");
            prop_assert!(bounded.text.len() <= max);
            prop_assert_eq!(bounded.whole_fits, body.len() <= max);
            if !bounded.whole_fits {
                prop_assert!(bounded.text.starts_with(&body[..body.floor_char_boundary(8)]));
                prop_assert!(bounded.text.ends_with(&body[body.ceil_char_boundary(body.len() - 8)..]));
            }
        }
    }

    #[test]
    fn beyond_the_limit_nothing_is_kept_but_all_is_counted() {
        let mut capture = Capture::new(1024);
        let chunk = vec![b'x'; 1 << 20];
        let mut shown = 0;
        for _ in 0..20 {
            shown += capture.push(&chunk).len();
        }
        capture.push(b"the end");
        assert_eq!(capture.total(), (20 << 20) + 7);
        assert!(shown < OUTPUT_KEPT_MAX + 100);
        let bounded = capture.bounded(4096, "a.txt");
        assert!(bounded.text.ends_with("the end") && bounded.text.contains("not kept"), "{}", bounded.text.len());
        assert_eq!(capture.into_kept().len(), OUTPUT_KEPT_MAX);
    }
}
