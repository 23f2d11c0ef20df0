//! What a call would replace, read only to be shown to whoever is asked about it.

use std::{
    fs::File,
    io::{ErrorKind, Read as _},
    path::Path,
};

use serde_json::Value;
use tenure_client::print::{Before, COMPARED_BYTES_MAX};

/// The file that a call writes whole.
pub fn written_by(call: &Value) -> Option<&str> {
    if call["name"] == "write_file" { call["input"]["path"].as_str() } else { None }
}

pub fn read(path: &Path) -> Before {
    let found = match path.metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Before::Nothing,
        found => found,
    };
    match found {
        Err(error) => Before::Hidden(error.to_string()),
        // Opening a pipe would wait for somebody who writes to it.
        Ok(found) if !found.is_file() => Before::Hidden("no file".into()),
        Ok(found) if found.len() > COMPARED_BYTES_MAX as u64 => Before::Hidden(format!("{} bytes long", found.len())),
        Ok(_) => text_of(path),
    }
}

fn text_of(path: &Path) -> Before {
    let mut text = String::new();
    match File::open(path).and_then(|file| file.take(COMPARED_BYTES_MAX as u64).read_to_string(&mut text)) {
        Ok(_) => Before::Text(text),
        Err(error) if error.kind() == ErrorKind::InvalidData => Before::Hidden("no text".into()),
        Err(error) => Before::Hidden(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_told_as_far_as_it_can_be_shown() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("text"), "one\n").unwrap();
        std::fs::write(at("bytes"), [0xff, 0xfe]).unwrap();
        std::fs::write(at("long"), vec![b'x'; COMPARED_BYTES_MAX + 1]).unwrap();
        assert_eq!(read(&at("text")), Before::Text("one\n".into()));
        assert_eq!(read(&at("none")), Before::Nothing);
        assert_eq!(read(&at("bytes")), Before::Hidden("no text".into()));
        assert_eq!(read(&at("long")), Before::Hidden("65537 bytes long".into()));
        assert_eq!(read(folder.path()), Before::Hidden("no file".into()));
    }
}
