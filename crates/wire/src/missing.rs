//! What an exported session lacks, as a header of the answer: the body is the archive.

use serde::{Deserialize, Serialize};

/// The header that says what the archive lacks.
pub const MISSING: &str = "tenure-missing";
/// So many bytes of names are told; the archive's own list has them all.
const NAMES_BYTES_MAX: usize = 4096;

/// Files that events name and that are lost or changed on the disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    pub count: u64,
    /// The first of them.
    pub names: Vec<String>,
}

impl Missing {
    pub fn new(names: &[String]) -> Self {
        let mut bytes = 0;
        let fits = |name: &&String| {
            bytes += name.len();
            bytes <= NAMES_BYTES_MAX
        };
        Self { count: names.len() as u64, names: names.iter().take_while(fits).cloned().collect() }
    }

    /// JSON in which every letter that a header cannot carry is escaped.
    pub fn to_header(&self) -> String {
        let json = serde_json::to_string(self).unwrap_or_default();
        let mut header = String::with_capacity(json.len());
        for letter in json.chars() {
            match letter {
                ' '..='~' => header.push(letter),
                _ => {
                    letter.encode_utf16(&mut [0; 2]).iter().for_each(|unit| header.push_str(&format!("\\u{unit:04x}")))
                }
            }
        }
        header
    }

    /// `None` if it is none.
    pub fn from_header(header: &str) -> Option<Self> {
        serde_json::from_str(header).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_comes_through_a_header() {
        let names = ["a b.png", "\"\\\n\u{7f}", "ä𝄞", ", {}"].map(str::to_owned);
        let missing = Missing::new(&names);
        let header = missing.to_header();
        assert!(header.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{header}");
        assert_eq!(Missing::from_header(&header), Some(missing));
        assert_eq!(Missing::from_header("3"), None);
    }

    #[test]
    fn many_names_are_counted_and_the_first_told() {
        let names: Vec<String> = (0..1000).map(|n| format!("attachments/{n:04}.png")).collect();
        let missing = Missing::new(&names);
        assert_eq!((missing.count, missing.names.len()), (1000, NAMES_BYTES_MAX / names[0].len()));
    }
}
