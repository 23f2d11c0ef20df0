//! Colours, width and safe characters. It writes nothing by itself.

use unicode_width::UnicodeWidthStr as _;

/// Sentences get this many columns, however little room there is.
const FOLDED_MIN: usize = 20;

/// What the place that text goes to can show. Handed in by the program; nothing is read from the environment here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    pub paint: Paint,
    pub raw: Raw,
    /// Columns; longer notes are cut.
    pub width: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    Plain,
    Colours,
}

/// What becomes of control characters in an answer's text. In notes they are always shown as signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Raw {
    /// As they came: for files and pipes, which want the exact text.
    Keep,
    /// As signs: for terminals, which would obey them.
    Tame,
}

impl Look {
    /// For files and pipes, where only what nobody would read is cut.
    pub const PLAIN: Look = Look { paint: Paint::Plain, raw: Raw::Keep, width: 4096 };

    pub fn paint(&self, tone: Tone, text: &str) -> String {
        match (self.paint, tone) {
            (Paint::Plain, _) | (_, Tone::Normal) => text.to_owned(),
            (Paint::Colours, tone) => format!("\x1b[{}m{text}\x1b[0m", tone.code()),
        }
    }

    /// One line that fits: control characters tamed, line ends shown, cut at the width.
    pub fn line(&self, text: &str, indent: usize) -> String {
        let room = self.width.saturating_sub(indent).max(8);
        cut(&tamed(&text.replace('\n', "⏎").replace('\t', " ")), room)
    }

    /// Sentences broken between words, where the terminal would break within one; a line keeps its indentation.
    pub fn folded(&self, text: &str) -> String {
        let most = if self.width == Self::PLAIN.width { usize::MAX } else { self.width };
        let fold = |line: &str| match columns(line) <= most {
            true => line.to_owned(),
            false => broken(line, most),
        };
        text.split('\n').map(fold).collect::<Vec<_>>().join("\n")
    }

    /// The same behind so many columns: every line after the first begins there too.
    pub fn folded_behind(&self, columns: usize, text: &str) -> String {
        let width = match self.width == Self::PLAIN.width {
            true => self.width,
            false => self.width.saturating_sub(columns).max(FOLDED_MIN),
        };
        Look { width, ..*self }.folded(text).replace('\n', &format!("\n{:columns$}", ""))
    }

    /// An answer's text as it may be shown.
    pub fn answer(&self, text: &str) -> String {
        match self.raw {
            Raw::Keep => text.to_owned(),
            Raw::Tame => tamed(text),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Normal,
    Faint,
    Good,
    Bad,
    Ask,
    Name,
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Tone::Normal => "0",
            Tone::Faint => "2",
            Tone::Good => "32",
            Tone::Bad => "31",
            Tone::Ask => "33",
            Tone::Name => "36",
        }
    }
}

/// How many columns a terminal needs for a text: some characters take two, some none.
pub fn columns(text: &str) -> usize {
    text.width()
}

/// The text, or as much of its beginning as fits into so many columns.
pub fn cut(text: &str, room: usize) -> String {
    if columns(text) <= room {
        return text.to_owned();
    }
    let fits = |end: &usize| columns(&text[..*end]) < room;
    let end = text.char_indices().map(|(at, _)| at).take_while(fits).last().unwrap_or(0);
    format!("{}…", &text[..end])
}

/// The same for its end.
pub fn cut_front(text: &str, room: usize) -> String {
    if columns(text) <= room {
        return text.to_owned();
    }
    let fits = |begin: &usize| columns(&text[*begin..]) < room;
    let begin = text.char_indices().map(|(at, _)| at).find(fits).unwrap_or(text.len());
    format!("…{}", &text[begin..])
}

/// Lines of whole words, each as long as fits and behind the same blanks.
fn broken(line: &str, most: usize) -> String {
    let words = line.trim_start_matches(' ');
    let blanks = &line[..line.len() - words.len()];
    let (mut lines, mut last) = (blanks.to_owned(), blanks.len());
    for (at, word) in words.split(' ').enumerate() {
        let wide = columns(word);
        if at > 0 && last + 1 + wide > most {
            lines.push('\n');
            lines.push_str(blanks);
            last = blanks.len();
        } else if at > 0 {
            lines.push(' ');
            last += 1;
        }
        lines.push_str(word);
        last += wide;
    }
    lines
}

/// Control characters other than line end and tab become visible signs, so that printed text cannot steer a terminal.
pub fn tamed(text: &str) -> String {
    let tame = |c: char| match c {
        '\n' | '\t' => c,
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}'),
        '\x7f' => '␡',
        '\u{80}'..='\u{9f}' => '\u{fffd}',
        // Marks that reorder text could make a command look like another one.
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        _ => c,
    };
    text.chars().map(tame).collect()
}

/// Money as people write it; a price that is not known is never shown as nothing.
pub fn money(micro_usd: Option<u64>) -> String {
    match micro_usd {
        None => "unknown".into(),
        // From a cent on, hundredths of a cent are enough; what is less is shown whole, so that it does not look free.
        Some(micro) if micro >= 10_000 => written(micro.saturating_add(50) / 100 * 100, 4),
        Some(micro) => written(micro, 4),
    }
}

/// What was paid, where a part of it may not be known.
pub fn paid(micro_usd: Option<u64>, known: u64) -> String {
    match micro_usd {
        None if known > 0 => format!("unknown, at least {}", money(Some(known))),
        whole => money(whole),
    }
}

/// An exact amount.
pub fn dollars(micro_usd: u64) -> String {
    written(micro_usd, 2)
}

/// With as many digits behind the point as it needs, and not fewer than these.
fn written(micro_usd: u64, digits_min: usize) -> String {
    let fraction = format!("{:06}", micro_usd % 1_000_000);
    let needed = fraction.trim_end_matches('0').len().max(digits_min);
    format!("${}.{}", micro_usd / 1_000_000, &fraction[..needed])
}

/// A span of time as people write it.
pub fn span(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        60_000..3_600_000 => format!("{} min", ms / 60_000),
        3_600_000..86_400_000 => format!("{} h", ms / 3_600_000),
        _ => format!("{} d", ms / 86_400_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_text_cannot_steer_a_terminal() {
        assert_eq!(tamed("a\x1b[31mb\r\n\tc\u{9b}\u{202e}"), "a␛[31mb␍\n\tc\u{fffd}\u{fffd}");
        assert_eq!(Look::PLAIN.answer("a\x1b"), "a\x1b");
        assert_eq!(Look { raw: Raw::Tame, ..Look::PLAIN }.answer("a\x1b"), "a␛");
    }

    #[test]
    fn lines_fit() {
        let look = Look { width: 12, ..Look::PLAIN };
        assert_eq!(look.line("short", 2), "short");
        assert_eq!(look.line("exactly ten", 2), "exactly t…");
        assert_eq!(look.line("a\nb", 0), "a⏎b");
    }

    #[test]
    fn sentences_are_broken_between_words() {
        let look = Look { width: 12, ..Look::PLAIN };
        assert_eq!(look.folded("it is at 127.0.0.1:8787 now"), "it is at\n127.0.0.1:8787\nnow");
        assert_eq!(look.folded("short\n  behind two blanks"), "short\n  behind two\n  blanks");
        assert_eq!(look.folded_behind(30, "behind thirty of them"), format!("behind thirty of\n{:30}them", ""));
        let long = "word ".repeat(1000);
        assert_eq!(Look::PLAIN.folded(&long), long);
    }

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!([columns("abc"), columns("日本"), columns("🦀"), columns("e\u{301}")], [3, 4, 2, 1]);
        let look = Look { width: 8, ..Look::PLAIN };
        assert_eq!(look.line("日本語日", 0), "日本語日");
        assert_eq!(look.line("日本語日本", 0), "日本語…");
        assert_eq!(cut_front("/a/日本語", 7), "…日本語");
        assert_eq!(cut_front("/a/日本語", 6), "…本語");
        assert_eq!([cut("ab", 1), cut_front("ab", 1), cut("", 0)], ["…", "…", ""]);
    }

    #[test]
    fn colours_only_where_wanted() {
        let look = Look { paint: Paint::Colours, ..Look::PLAIN };
        assert_eq!(look.paint(Tone::Bad, "x"), "\x1b[31mx\x1b[0m");
        assert_eq!(Look::PLAIN.paint(Tone::Bad, "x"), "x");
    }

    #[test]
    fn money_and_time() {
        assert_eq!([money(None), money(Some(0)), money(Some(1_234_567))], ["unknown", "$0.0000", "$1.2346"]);
        assert_eq!(
            [270, 60, 1_200, 99_999].map(|micro| money(Some(micro))),
            ["$0.00027", "$0.00006", "$0.0012", "$0.1000"]
        );
        assert_eq!(
            [paid(None, 0), paid(Some(7), 7), paid(None, 1_200)],
            ["unknown", "$0.000007", "unknown, at least $0.0012"]
        );
        assert_eq!([34_000, 30_000, 2_500_000, 1].map(dollars), ["$0.034", "$0.03", "$2.50", "$0.000001"]);
        let spans = [999, 1_250, 61_000, 7_200_000, 200_000_000].map(span);
        assert_eq!(spans, ["999 ms", "1.2 s", "1 min", "2 h", "2 d"]);
    }
}
