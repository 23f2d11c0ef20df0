//! What is known of one file: what it defines and what it names. It holds no text beyond names and signatures.

/// A file's definitions in the order of the file, and the names it uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tags {
    pub definitions: Vec<Definition>,
    /// Each name once, sorted, with how often it occurs.
    pub references: Vec<(Box<str>, u32)>,
    /// The parser was stopped: it took too long.
    pub too_slow: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    pub name: Box<str>,
    /// Its first lines without the body, on one line.
    pub signature: Box<str>,
    /// Counted from 1.
    pub first_line: u32,
    pub last_line: u32,
    /// The definition around it, by its place in the list.
    pub parent: Option<u32>,
    pub shape: Shape,
}

/// What a definition is to its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Only a place for others: an `impl`, a module, a namespace. It is shown above them, never for itself.
    Group,
    /// Has members worth naming: a class, a trait, a type.
    Type,
    /// What is defined inside is nobody else's business.
    Function,
    Value,
}

impl Shape {
    pub(crate) fn code(self) -> u8 {
        match self {
            Shape::Group => 0,
            Shape::Type => 1,
            Shape::Function => 2,
            Shape::Value => 3,
        }
    }

    pub(crate) fn of_code(code: u8) -> Option<Shape> {
        [Shape::Group, Shape::Type, Shape::Function, Shape::Value].into_iter().find(|shape| shape.code() == code)
    }
}
