//! The languages: which files are theirs, and which nodes of their grammars define and name things. No file is read here.

use std::sync::OnceLock;

use crate::tags::Shape;

/// Languages whose names mean the same thing: a C++ file uses what a C header defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    Rust,
    Python,
    Script,
    Go,
    Java,
    C,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    Rust,
    Python,
    JavaScript,
    TypeScript,
    Tsx,
    Go,
    Java,
    C,
    Cpp,
}

/// How a kind of node defines something.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    kind: &'static str,
    pub(crate) shape: Shape,
    pub(crate) name: Name,
    pub(crate) only: Only,
}

/// Where the name of a definition stands.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Name {
    Field(&'static str),
    /// At the end of a chain of declarators, as in C.
    Declarator,
}

/// When such a node counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Only {
    Always,
    /// Without a body it only names what is defined elsewhere.
    WithBody,
    /// A declaration of a function, not of a variable.
    OfFunction,
    /// Its value is a function or a class, or it stands outside of all others.
    Callable,
    /// It stands outside of all others.
    Outermost,
}

const fn rule(kind: &'static str, shape: Shape, name: Name, only: Only) -> Rule {
    Rule { kind, shape, name, only }
}

const NAME: Name = Name::Field("name");
use Only::{Always, Callable, OfFunction, Outermost, WithBody};
use Shape::{Function, Group, Type, Value};

const RUST: &[Rule] = &[
    rule("function_item", Function, NAME, Always),
    rule("function_signature_item", Function, NAME, Always),
    rule("struct_item", Type, NAME, Always),
    rule("enum_item", Type, NAME, Always),
    rule("union_item", Type, NAME, Always),
    rule("trait_item", Type, NAME, Always),
    rule("type_item", Type, NAME, Always),
    rule("impl_item", Group, Name::Field("type"), Always),
    rule("mod_item", Group, NAME, WithBody),
    rule("const_item", Value, NAME, Always),
    rule("static_item", Value, NAME, Always),
    rule("macro_definition", Function, NAME, Always),
];
const PYTHON: &[Rule] = &[
    rule("function_definition", Function, NAME, Always),
    rule("class_definition", Type, NAME, Always),
    rule("assignment", Value, Name::Field("left"), Outermost),
];
const SCRIPT: &[Rule] = &[
    rule("function_declaration", Function, NAME, Always),
    rule("generator_function_declaration", Function, NAME, Always),
    rule("function_signature", Function, NAME, Always),
    rule("class_declaration", Type, NAME, Always),
    rule("abstract_class_declaration", Type, NAME, Always),
    rule("method_definition", Function, NAME, Always),
    rule("method_signature", Function, NAME, Always),
    rule("abstract_method_signature", Function, NAME, Always),
    rule("interface_declaration", Type, NAME, Always),
    rule("type_alias_declaration", Type, NAME, Always),
    rule("enum_declaration", Type, NAME, Always),
    rule("internal_module", Group, NAME, Always),
    rule("variable_declarator", Value, NAME, Callable),
];
const GO: &[Rule] = &[
    rule("function_declaration", Function, NAME, Always),
    rule("method_declaration", Function, NAME, Always),
    rule("method_elem", Function, NAME, Always),
    rule("type_spec", Type, NAME, Always),
    rule("type_alias", Type, NAME, Always),
    rule("const_spec", Value, NAME, Outermost),
    rule("var_spec", Value, NAME, Outermost),
];
const JAVA: &[Rule] = &[
    rule("class_declaration", Type, NAME, Always),
    rule("interface_declaration", Type, NAME, Always),
    rule("enum_declaration", Type, NAME, Always),
    rule("record_declaration", Type, NAME, Always),
    rule("annotation_type_declaration", Type, NAME, Always),
    rule("method_declaration", Function, NAME, Always),
    rule("constructor_declaration", Function, NAME, Always),
];
const C: &[Rule] = &[
    rule("function_definition", Function, Name::Declarator, Always),
    rule("declaration", Function, Name::Declarator, OfFunction),
    rule("field_declaration", Function, Name::Declarator, OfFunction),
    rule("struct_specifier", Type, NAME, WithBody),
    rule("union_specifier", Type, NAME, WithBody),
    rule("enum_specifier", Type, NAME, WithBody),
    rule("class_specifier", Type, NAME, WithBody),
    rule("concept_definition", Type, NAME, Always),
    rule("alias_declaration", Type, NAME, Always),
    rule("type_definition", Type, Name::Declarator, Always),
    rule("namespace_definition", Group, NAME, WithBody),
    rule("preproc_def", Value, NAME, Always),
    rule("preproc_function_def", Function, NAME, Always),
];

/// Leaves that name something, in all grammars.
const IDENTIFIERS: &[&str] = &[
    "identifier",
    "type_identifier",
    "field_identifier",
    "property_identifier",
    "private_property_identifier",
    "shorthand_property_identifier",
    "shorthand_field_identifier",
    "namespace_identifier",
];

impl Language {
    /// By the ending of the file's name.
    pub(crate) fn of_path(path: &str) -> Option<Language> {
        let name = path.rsplit('/').next()?;
        let (stem, ending) = name.rsplit_once('.')?;
        if stem.is_empty() {
            return None;
        }
        Some(match ending {
            "rs" => Language::Rust,
            "py" | "pyi" => Language::Python,
            "js" | "mjs" | "cjs" | "jsx" => Language::JavaScript,
            "ts" | "mts" | "cts" => Language::TypeScript,
            "tsx" => Language::Tsx,
            "go" => Language::Go,
            "java" => Language::Java,
            "c" => Language::C,
            // A header may be of either; the larger grammar reads both.
            "h" | "cc" | "cpp" | "cxx" | "hh" | "hpp" | "hxx" => Language::Cpp,
            _ => return None,
        })
    }

    pub(crate) fn family(self) -> Family {
        match self {
            Language::Rust => Family::Rust,
            Language::Python => Family::Python,
            Language::JavaScript | Language::TypeScript | Language::Tsx => Family::Script,
            Language::Go => Family::Go,
            Language::Java => Family::Java,
            Language::C | Language::Cpp => Family::C,
        }
    }

    pub(crate) fn grammar(self) -> tree_sitter::Language {
        match self {
            Language::Rust => tree_sitter_rust::LANGUAGE.into(),
            Language::Python => tree_sitter_python::LANGUAGE.into(),
            Language::JavaScript => tree_sitter_javascript::LANGUAGE.into(),
            Language::TypeScript => tree_sitter_typescript::LANGUAGE_TYPESCRIPT.into(),
            Language::Tsx => tree_sitter_typescript::LANGUAGE_TSX.into(),
            Language::Go => tree_sitter_go::LANGUAGE.into(),
            Language::Java => tree_sitter_java::LANGUAGE.into(),
            Language::C => tree_sitter_c::LANGUAGE.into(),
            Language::Cpp => tree_sitter_cpp::LANGUAGE.into(),
        }
    }

    fn rules(self) -> &'static [Rule] {
        match self.family() {
            Family::Rust => RUST,
            Family::Python => PYTHON,
            Family::Script => SCRIPT,
            Family::Go => GO,
            Family::Java => JAVA,
            Family::C => C,
        }
    }

    /// What each kind of node means; made when the language is first met.
    pub(crate) fn meanings(self) -> &'static [Meaning] {
        static TABLES: [OnceLock<Vec<Meaning>>; 9] = [const { OnceLock::new() }; 9];
        TABLES[self as usize].get_or_init(|| self.make_meanings())
    }

    fn make_meanings(self) -> Vec<Meaning> {
        let grammar = self.grammar();
        let mut table = vec![Meaning::None; grammar.node_kind_count()];
        let mut set = |kind: &str, meaning: Meaning| {
            // A kind that this grammar lacks is number 0, which no node has.
            if let Some(entry) = table.get_mut(usize::from(grammar.id_for_node_kind(kind, true))) {
                *entry = meaning;
            }
        };
        IDENTIFIERS.iter().for_each(|kind| set(kind, Meaning::Identifier));
        self.rules().iter().for_each(|rule| set(rule.kind, Meaning::Definition(rule)));
        if let Some(first) = table.first_mut() {
            *first = Meaning::None;
        }
        table
    }
}

/// What a kind of node is to us.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Meaning {
    None,
    Identifier,
    Definition(&'static Rule),
}
