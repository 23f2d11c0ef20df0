//! Makes a file's tags from its bytes. Whatever the bytes are, it ends within its time, and no depth of nesting makes it recurse.

use std::{
    collections::{HashMap, HashSet},
    ops::ControlFlow,
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};
use tree_sitter::{Node, ParseOptions, Parser, Tree};

use crate::{
    Stop,
    language::{Language, Meaning, Name, Only, Rule},
    tags::{Definition, Shape, Tags},
};

/// Nodes that are looked at between two looks at the clock.
const LOOK_EVERY: usize = 4096;
/// What is kept of one file.
const DEFINITIONS_MAX: usize = 2_000;
const REFERENCES_MAX: usize = 4_000;
/// Longer names and signatures are not worth a reader's time.
const NAME_BYTES_MAX: usize = 100;
const SIGNATURE_BYTES_MAX: usize = 180;
/// `export const x` is program, export, declaration and declarator.
const OUTERMOST_DEPTH: usize = 3;
/// Declarators around one name in C.
const CHAIN_MAX: usize = 16;

/// Parses the files of one thread; the parser of a language is made once.
#[derive(Default)]
pub(crate) struct Reader {
    parser: Option<(Language, Parser)>,
}

impl Reader {
    /// `None`: stopped from outside, so nothing is known.
    pub(crate) fn read(&mut self, language: Language, bytes: &[u8], limit: Duration, stop: &Stop) -> Option<Tags> {
        let clock = Clock::start(limit);
        let slow = Tags { too_slow: true, ..Tags::default() };
        let Some(tree) = self.parse(language, bytes, &clock, stop) else {
            return stop.check().is_ok().then_some(slow);
        };
        Some(Gatherer::new(language, bytes).gather(&tree, &clock).unwrap_or(slow))
    }

    fn parse(&mut self, language: Language, bytes: &[u8], clock: &Clock, stop: &Stop) -> Option<Tree> {
        if self.parser.as_ref().is_none_or(|(known, _)| *known != language) {
            let mut parser = Parser::new();
            // A grammar of another generation than the library is a fault of the build; a test parses with each.
            parser.set_language(&language.grammar()).ok()?;
            self.parser = Some((language, parser));
        }
        let (_, parser) = self.parser.as_mut()?;
        let mut look = |_: &tree_sitter::ParseState| match clock.is_up() || stop.check().is_err() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let options = ParseOptions::new().progress_callback(&mut look);
        let tree = parser.parse_with_options(&mut |at, _| &bytes[at.min(bytes.len())..], None, Some(options));
        if tree.is_none() {
            // What it was about must not be gone on with in the next file.
            parser.reset();
        }
        tree
    }
}

/// The time that this thread has worked.
struct Clock {
    until: Duration,
}

impl Clock {
    fn start(limit: Duration) -> Self {
        Self { until: worked() + limit }
    }

    fn is_up(&self) -> bool {
        worked() >= self.until
    }
}

fn worked() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

struct Gatherer<'b> {
    meanings: &'static [Meaning],
    bytes: &'b [u8],
    definitions: Vec<Definition>,
    references: HashMap<&'b [u8], u32>,
    /// Where the names of definitions begin: those are no references.
    named_at: HashSet<usize>,
    /// The definitions around the present node, with where each ends.
    around: Vec<(usize, u32, Shape)>,
    /// Of the present node, below the root.
    depth: usize,
}

impl<'b> Gatherer<'b> {
    fn new(language: Language, bytes: &'b [u8]) -> Self {
        Self {
            meanings: language.meanings(),
            bytes,
            definitions: vec![],
            references: HashMap::new(),
            named_at: HashSet::new(),
            around: vec![],
            depth: 0,
        }
    }

    /// Goes over all nodes in order; `None` when the time is up.
    fn gather(mut self, tree: &Tree, clock: &Clock) -> Option<Tags> {
        let mut cursor = tree.walk();
        let mut seen = 0_usize;
        loop {
            seen += 1;
            if seen.is_multiple_of(LOOK_EVERY) && clock.is_up() {
                return None;
            }
            self.look_at(cursor.node());
            if cursor.goto_first_child() {
                self.depth += 1;
                continue;
            }
            while !cursor.goto_next_sibling() {
                if !cursor.goto_parent() {
                    return Some(self.tags());
                }
                self.depth -= 1;
            }
        }
    }

    fn look_at(&mut self, node: Node) {
        match self.meanings.get(usize::from(node.kind_id())).unwrap_or(&Meaning::None) {
            Meaning::None => {}
            Meaning::Identifier => self.refer(node),
            Meaning::Definition(rule) => self.define(node, rule),
        }
    }

    fn refer(&mut self, node: Node) {
        let name = &self.bytes[node.byte_range()];
        if name.len() < 2 || name.len() > NAME_BYTES_MAX || self.named_at.contains(&node.start_byte()) {
            return;
        }
        if let Some(count) = self.references.get_mut(name) {
            *count = count.saturating_add(1);
        } else if self.references.len() < REFERENCES_MAX {
            self.references.insert(name, 1);
        }
    }

    fn define(&mut self, node: Node, rule: &Rule) {
        let start = node.start_byte();
        while self.around.last().is_some_and(|(end, ..)| *end <= start) {
            self.around.pop();
        }
        let inside_function = self.around.iter().any(|(_, _, shape)| matches!(shape, Shape::Function | Shape::Value));
        let counts = !inside_function && self.definitions.len() < DEFINITIONS_MAX && self.counts(node, rule);
        let Some(name) = name_of(node, rule.name).filter(|_| counts) else { return };
        let text = &self.bytes[name.byte_range()];
        if text.is_empty() || text.len() > NAME_BYTES_MAX {
            return;
        }
        // The type of an `impl` is defined elsewhere: here it is named.
        if rule.shape != Shape::Group {
            self.named_at.insert(name.start_byte());
        }
        let shape = if is_callable(node) { Shape::Function } else { rule.shape };
        let at = u32::try_from(self.definitions.len()).unwrap_or(u32::MAX);
        let definition = Definition {
            name: String::from_utf8_lossy(text).into(),
            signature: signature(self.bytes, node, name, shape),
            first_line: line(node.start_position().row),
            last_line: line(last_row(node)),
            parent: self.around.last().map(|(_, parent, _)| *parent),
            shape,
        };
        self.definitions.push(definition);
        self.around.push((node.end_byte(), at, shape));
    }

    fn counts(&self, node: Node, rule: &Rule) -> bool {
        match rule.only {
            Only::Always => true,
            Only::WithBody => node.child_by_field_name("body").is_some(),
            Only::OfFunction => is_of_function(node),
            Only::Callable => is_callable(node) || self.is_outermost(node),
            Only::Outermost => self.is_outermost(node),
        }
    }

    /// Not inside a definition, nor inside a block of code that defines nothing itself.
    fn is_outermost(&self, node: Node) -> bool {
        let is_named = name_of(node, Name::Field("name")).or_else(|| name_of(node, Name::Field("left")));
        let is_plain = is_named.is_some_and(|name| name.kind().ends_with("identifier"));
        is_plain && self.around.is_empty() && self.depth <= OUTERMOST_DEPTH
    }

    fn tags(self) -> Tags {
        let lossy = |(name, count): (&[u8], u32)| (String::from_utf8_lossy(name).into(), count);
        let mut references: Vec<(Box<str>, u32)> = self.references.into_iter().map(lossy).collect();
        references.sort_unstable();
        Tags { definitions: self.definitions, references, too_slow: false }
    }
}

fn name_of<'t>(node: Node<'t>, name: Name) -> Option<Node<'t>> {
    match name {
        Name::Field(field) => node.child_by_field_name(field),
        Name::Declarator => {
            let mut inner = node.child_by_field_name("declarator")?;
            for _ in 0..CHAIN_MAX {
                let next = inner.child_by_field_name("declarator").or_else(|| match inner.kind() {
                    "qualified_identifier" | "template_function" => inner.child_by_field_name("name"),
                    "parenthesized_declarator" | "reference_declarator" => inner.named_child(0),
                    _ => None,
                });
                match next {
                    Some(next) => inner = next,
                    None => break,
                }
            }
            (inner.child_count() == 0 || inner.kind() == "operator_name" || inner.kind() == "destructor_name")
                .then_some(inner)
        }
    }
}

/// Whether a declaration's declarator is that of a function.
fn is_of_function(node: Node) -> bool {
    let mut inner = node.child_by_field_name("declarator");
    for _ in 0..CHAIN_MAX {
        match inner {
            Some(declarator) if declarator.kind() == "function_declarator" => return true,
            Some(declarator) => {
                let next = declarator.child_by_field_name("declarator");
                inner =
                    next.or_else(|| declarator.named_child(0).filter(|_| declarator.kind() == "reference_declarator"));
            }
            None => return false,
        }
    }
    false
}

/// A variable whose value is a function or a class.
fn is_callable(node: Node) -> bool {
    const CALLABLE: [&str; 4] = ["arrow_function", "function_expression", "generator_function", "class"];
    node.kind() == "variable_declarator"
        && node.child_by_field_name("value").is_some_and(|value| CALLABLE.contains(&value.kind()))
}

/// What stands before the body, on one line. Of a value only what stands before the equals sign: it may be long, or a secret.
fn signature(bytes: &[u8], node: Node, name: Node, shape: Shape) -> Box<str> {
    let begin = line_begin(bytes, node.start_byte());
    let text = &bytes[begin..signature_end(node, name).max(begin)];
    // More than is kept, since spaces will go.
    let text = String::from_utf8_lossy(&text[..text.len().min(4 * SIGNATURE_BYTES_MAX)]);
    let text = match shape {
        Shape::Value => text.split('=').next().unwrap_or_default(),
        Shape::Group | Shape::Type | Shape::Function => &text,
    };
    let words: Vec<&str> = text.split_whitespace().filter(|word| *word != "\\").collect();
    // A list that was written over several lines has spaces and a comma that it needs no more.
    let mut line = words.join(" ").replace("( ", "(").replace(" )", ")").replace(",)", ")");
    line.truncate(line.trim_end_matches("=>").trim_end_matches(['{', ':', ';', ' ', '\u{FFFD}']).len());
    if node.kind() == "type_definition" && name.end_byte() > signature_end(node, name) {
        line = format!("{line} {}", String::from_utf8_lossy(&bytes[name.byte_range()]));
    }
    if line.len() > SIGNATURE_BYTES_MAX {
        line.truncate(line.floor_char_boundary(SIGNATURE_BYTES_MAX));
        line.push('…');
    }
    line.into()
}

/// Where the body begins; where there is none, the end.
fn signature_end(node: Node, name: Node) -> usize {
    let value = node.child_by_field_name("value");
    let begins = |body: Node| body.start_byte();
    match node.kind() {
        "macro_definition" => name.end_byte(),
        "preproc_def" | "preproc_function_def" => value.map_or(node.end_byte(), begins),
        _ => {
            let body = node.child_by_field_name("body").or_else(|| body_of(node));
            body.or_else(|| value?.child_by_field_name("body")).map_or(node.end_byte(), begins)
        }
    }
}

/// A body that the grammar gives no name to: that of a type in Go, and of a `typedef` in C.
fn body_of(node: Node) -> Option<Node> {
    let inner = node.child_by_field_name("type")?;
    let kinds = ["struct_type", "interface_type"];
    match kinds.contains(&inner.kind()) {
        true => (0..inner.named_child_count()).find_map(|at| inner.named_child(u32::try_from(at).ok()?)),
        false => inner.child_by_field_name("body").filter(|_| node.kind() == "type_definition"),
    }
}

/// Words such as `pub` and `export` before a definition belong to it; code does not.
fn line_begin(bytes: &[u8], at: usize) -> usize {
    const PREFIX_BYTES_MAX: usize = 40;
    let from = at.saturating_sub(PREFIX_BYTES_MAX);
    let before = &bytes[from..at];
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b' ' | b'\t' | b'_');
    match before.iter().rposition(|byte| !is_word(byte)) {
        Some(last) if before[last] == b'\n' && !before[last + 1..].starts_with(b"typedef ") => from + last + 1,
        None if from == 0 => 0,
        _ => at,
    }
}

fn line(row: usize) -> u32 {
    u32::try_from(row + 1).unwrap_or(u32::MAX)
}

/// A node that ends with a line's end does not reach into the next one.
fn last_row(node: Node) -> usize {
    let end = node.end_position();
    if end.column == 0 { end.row.saturating_sub(1).max(node.start_position().row) } else { end.row }
}
