//! A page's text, as somebody would read it aloud to a model: headings, links, lists and code marked as in Markdown, the
//! rest plain. It goes through the page's tags once, in order, so no page can make it slow or deep; and it never runs
//! or loads anything.

use html5gum::{DefaultEmitter, StartTag, Token, Tokenizer};
use reqwest::Url;

/// A page's links may be short where they stand and long when they are whole.
const TEXT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Where a page says how it is written, if it does.
const CHARSET_BYTES: usize = 1024;
/// A page whose main part holds at least this much has nothing else worth reading.
const MAIN_BYTES_MIN: usize = 200;
const INDENT_MAX: usize = 8;

/// What nobody reads.
const SKIPPED: &[&str] = &[
    "script", "style", "noscript", "template", "svg", "math", "iframe", "object", "canvas", "select", "textarea",
    "button",
];
/// What stands on lines of its own, with a space around it.
const BLOCKS: &[&str] = &[
    "p",
    "div",
    "section",
    "article",
    "main",
    "header",
    "footer",
    "nav",
    "aside",
    "ul",
    "ol",
    "dl",
    "table",
    "blockquote",
    "figure",
    "figcaption",
    "form",
    "fieldset",
    "address",
    "details",
    "hgroup",
    "body",
];
/// What stands on a line of its own.
const LINES: &[&str] = &["tr", "dt", "dd", "summary", "caption", "option", "legend"];

pub(super) fn readable(html: &str, base: &Url) -> String {
    let mut emitter = DefaultEmitter::default();
    // Without a tree nobody else says where a script ends.
    emitter.naively_switch_states(true);
    let mut page = Page::new(base);
    for token in Tokenizer::new_with_emitter(html, emitter) {
        let Ok(token) = token;
        match token {
            Token::StartTag(tag) => page.open(&tag),
            Token::EndTag(tag) => page.close(&String::from_utf8_lossy(&tag.name)),
            Token::String(text) => page.say(&String::from_utf8_lossy(&text)),
            Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => {}
        }
        if page.text.len() > TEXT_BYTES_MAX {
            break;
        }
    }
    page.finish()
}

/// How a page says it is written.
pub(super) fn charset(body: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(&body[..body.len().min(CHARSET_BYTES)]).to_ascii_lowercase();
    let (_, rest) = head.split_once("charset=")?;
    let label: String = rest
        .trim_start_matches(['"', '\''])
        .chars()
        .take_while(|c| c.is_ascii_alphanumeric() || "-_:.".contains(*c))
        .collect();
    (!label.is_empty()).then_some(label)
}

struct Page<'u> {
    base: &'u Url,
    text: String,
    title: String,
    in_title: bool,
    /// How many of the same kind are open that nobody reads, and which.
    skipped: Option<(String, usize)>,
    /// Line breaks that are due before the next word.
    breaks: usize,
    /// A space is due before the next word.
    space: bool,
    /// Inside `pre`.
    verbatim: usize,
    lists: Vec<List>,
    /// Where each open link began, and where it leads.
    links: Vec<(usize, String)>,
    cells: usize,
    /// Where the main part began and ended.
    main: Option<(usize, Option<usize>)>,
}

enum List {
    Bullets,
    Numbers(usize),
}

impl<'u> Page<'u> {
    fn new(base: &'u Url) -> Self {
        Self {
            base,
            text: String::new(),
            title: String::new(),
            in_title: false,
            skipped: None,
            breaks: 0,
            space: false,
            verbatim: 0,
            lists: vec![],
            links: vec![],
            cells: 0,
            main: None,
        }
    }

    fn open(&mut self, tag: &StartTag<()>) {
        let name = String::from_utf8_lossy(&tag.name).into_owned();
        if let Some((skipped, depth)) = &mut self.skipped {
            *depth += usize::from(*skipped == name && !tag.self_closing);
            return;
        }
        match name.as_str() {
            name if SKIPPED.contains(&name) && !tag.self_closing => self.skipped = Some((name.to_owned(), 1)),
            "title" => self.in_title = self.title.is_empty(),
            "br" => self.line(1),
            "hr" => {
                self.line(2);
                self.word("---");
                self.line(2);
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.line(2);
                let level = usize::from(name.as_bytes()[1] - b'0');
                self.word(&"#".repeat(level));
                self.space = true;
            }
            "li" => self.item(),
            "pre" => {
                self.line(2);
                self.word("```");
                self.line(1);
                self.verbatim += 1;
            }
            "code" | "kbd" | "samp" if self.verbatim == 0 => self.mark("`"),
            "a" => self.link(&attribute(tag, "href")),
            "img" => {
                let alt = attribute(tag, "alt");
                if !alt.trim().is_empty() {
                    self.say(&format!("[image: {}]", alt.trim()));
                }
            }
            "td" | "th" => {
                if self.cells > 0 {
                    self.word(" |");
                    self.space = true;
                }
                self.cells += 1;
            }
            name => self.block(name, Edge::Start),
        }
    }

    fn close(&mut self, name: &str) {
        if let Some((skipped, depth)) = &mut self.skipped {
            *depth -= usize::from(skipped == name);
            if *depth == 0 {
                self.skipped = None;
            }
            return;
        }
        match name {
            "title" => self.in_title = false,
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => self.line(2),
            "li" => self.line(1),
            "pre" if self.verbatim > 0 => {
                self.verbatim -= 1;
                if !self.text.ends_with('\n') {
                    self.text.push('\n');
                }
                self.breaks = 0;
                self.text.push_str("```");
                self.line(2);
            }
            "code" | "kbd" | "samp" if self.verbatim == 0 => {
                // It belongs to the word before it.
                self.text.push('`');
            }
            "a" => self.close_link(),
            name => self.block(name, Edge::End),
        }
    }

    fn block(&mut self, name: &str, edge: Edge) {
        match name {
            _ if LINES.contains(&name) => self.line(1),
            _ if !BLOCKS.contains(&name) => return,
            "ul" | "ol" if !self.lists.is_empty() => self.line(1),
            _ => self.line(2),
        }
        match (name, edge) {
            ("tr", _) => self.cells = 0,
            ("ul", Edge::Start) => self.lists.push(List::Bullets),
            ("ol", Edge::Start) => self.lists.push(List::Numbers(0)),
            ("ul" | "ol", Edge::End) => drop(self.lists.pop()),
            ("main" | "article", Edge::Start) if self.main.is_none() => self.main = Some((self.text.len(), None)),
            ("main", Edge::End) => {
                if let Some((_, end)) = &mut self.main {
                    end.get_or_insert(self.text.len());
                }
            }
            _ => {}
        }
    }

    fn item(&mut self) {
        self.line(1);
        let depth = self.lists.len().min(INDENT_MAX);
        let mark = match self.lists.last_mut() {
            Some(List::Numbers(number)) => {
                *number += 1;
                format!("{number}.")
            }
            _ => "-".to_owned(),
        };
        self.word(&format!("{}{mark}", "  ".repeat(depth.saturating_sub(1))));
        self.space = true;
    }

    fn link(&mut self, href: &str) {
        let leads = self.base.join(href.trim()).ok().filter(|url| ["http", "https"].contains(&url.scheme()));
        let is_here = href.trim().is_empty() || href.trim().starts_with('#');
        match leads.filter(|_| !is_here && self.verbatim == 0) {
            Some(url) => {
                self.mark("[");
                self.links.push((self.text.len(), url.into()));
            }
            None => self.links.push((usize::MAX, String::new())),
        }
    }

    fn close_link(&mut self) {
        let Some((start, url)) = self.links.pop() else { return };
        if start == usize::MAX {
            return;
        }
        // A link without a text leads nowhere that a reader could name.
        if self.text.get(start..).is_some_and(|text| text.trim().is_empty()) {
            self.text.truncate(start - 1);
            return;
        }
        self.text.push_str(&format!("]({url})"));
    }

    /// A line is due, or with two a line that is empty.
    fn line(&mut self, breaks: usize) {
        self.breaks = self.breaks.max(breaks);
        self.space = false;
    }

    /// A mark that belongs to the word after it.
    fn mark(&mut self, mark: &str) {
        self.due();
        self.text.push_str(mark);
    }

    fn word(&mut self, word: &str) {
        self.due();
        self.text.push_str(word);
    }

    fn due(&mut self) {
        if self.breaks > 0 && !self.text.is_empty() {
            self.text.truncate(self.text.trim_end_matches(' ').len());
            self.text.push_str(&"\n".repeat(self.breaks));
        } else if self.space && !self.text.is_empty() && !self.text.ends_with([' ', '\n', '[', '`']) {
            self.text.push(' ');
        }
        (self.breaks, self.space) = (0, false);
    }

    fn say(&mut self, text: &str) {
        if self.skipped.is_some() {
            return;
        }
        if self.in_title {
            self.title.push_str(text);
            return;
        }
        if self.verbatim > 0 {
            if !text.is_empty() {
                self.due();
                self.text.push_str(text);
            }
            return;
        }
        self.space |= text.starts_with(char::is_whitespace);
        for word in text.split_whitespace() {
            self.word(word);
            self.space = true;
        }
        self.space = text.ends_with(char::is_whitespace) || (self.space && text.trim().is_empty());
    }

    fn finish(self) -> String {
        let whole = self.text.trim();
        let main = self.main.map(|(start, end)| self.text[start..end.unwrap_or(self.text.len())].trim());
        let text = main.filter(|main| main.len() >= MAIN_BYTES_MIN).unwrap_or(whole);
        let title: Vec<&str> = self.title.split_whitespace().collect();
        match title.is_empty() {
            true => text.to_owned(),
            false => format!("Title: {}\n\n{text}", title.join(" ")),
        }
    }
}

enum Edge {
    Start,
    End,
}

fn attribute(tag: &StartTag<()>, name: &str) -> String {
    tag.attributes.get(name.as_bytes()).map(|value| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(html: &str, expected: &str) {
        assert_eq!(readable(html, &Url::parse("https://a.example/dir/page").unwrap()), expected);
    }

    #[test]
    fn a_page_reads_like_markdown() {
        check(
            "<title>A &amp; B</title><h1>Head</h1><p>One  two\n three.<br>Four</p><hr>End",
            "Title: A & B\n\n# Head\n\nOne two three.\nFour\n\n---\n\nEnd",
        );
        check(
            "<p>See <a href='../x?y=1'>the <b>docs</b></a>, or <a href='#here'>here</a>.",
            "See [the docs](https://a.example/x?y=1), or here.",
        );
        check("<ul><li>a<li>b<ol><li>c</li><li>d</li></ol></li></ul><p>after", "- a\n- b\n  1. c\n  2. d\n\nafter");
        check(
            "<p>Use <code>x &lt; y</code>:<pre>fn a() {\n    b\n}</pre>done",
            "Use `x < y`:\n\n```\nfn a() {\n    b\n}\n```\n\ndone",
        );
        check("<table><tr><th>a<th>b<tr><td>1<td>2</table>", "a | b\n1 | 2");
        check("<img alt='a cat' src=x> <img src=y>", "[image: a cat]");
    }

    #[test]
    fn what_nobody_reads_is_left_out() {
        check("a<script>if (1 < 2) document.write('<p>no</p>')</script>b<style>p{}</style>c<!-- d -->", "abc");
        check("<a href='javascript:alert(1)'>x</a><a href='data:text/html,y'>y</a><a href='/z'></a>z", "xyz");
        check("a<svg><svg><text>no</text></svg>no</svg>b<noscript>no</noscript><select><option>no</select>", "ab");
        check("<script>never closed", "");
    }

    #[test]
    fn the_main_part_is_enough_where_it_is_long() {
        let long = "word ".repeat(50);
        check(&format!("<nav>menu</nav><main><p>{long}</main><footer>foot"), long.trim());
        check("<nav>menu</nav><main>short</main>", "menu\n\nshort");
    }

    #[test]
    fn a_page_tells_how_it_is_written() {
        assert_eq!(charset(b"<meta charset=\"ISO-8859-1\">"), Some("iso-8859-1".into()));
        assert_eq!(
            charset(b"<meta http-equiv=content-type content='text/html; charset=euc-jp'>"),
            Some("euc-jp".into())
        );
        assert_eq!(charset(b"<p>none"), None);
    }

    #[test]
    fn neither_depth_nor_links_make_it_large() {
        let base = Url::parse(&format!("https://a.example/{}/", "x".repeat(2000))).unwrap();
        assert!(readable(&"<a href=x>x</a>".repeat(300_000), &base).len() <= TEXT_BYTES_MAX + 4096);
        assert_eq!(readable(&("<div><ul><li>".repeat(100_000) + "x"), &base).trim_end().chars().last(), Some('x'));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(html in "(<[/a-z0-9 ='\"#]{0,8}>|[a-zä <>&;\n]{0,8}){0,40}") {
            readable(&html, &Url::parse("https://a.example").unwrap());
        }
    }
}
