//! What lies in a data folder and what people paste may be anything.

use tenure_client::discover;
use tenure_fuzzkit::target;

#[test]
fn note() {
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join(discover::TOKEN_FILE), "abc\n").unwrap();
    target!("note").cases(500).run(|input| {
        std::fs::write(data.path().join(discover::NOTE_FILE), input).unwrap();
        match discover::read(data.path()) {
            // Nothing in the corpus was written by a process that lives.
            Ok(running) => assert!(discover::is_current(&running.note)),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
}

#[test]
fn fingerprint() {
    target!("fingerprint").cases(1000).run(|input| {
        let Ok(text) = std::str::from_utf8(input) else { return };
        let Ok(trust) = tenure_client::Trust::fingerprint(text) else { return };
        let plain: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        assert_eq!(tenure_client::Trust::fingerprint(&plain), Ok(trust), "the digits alone say the same");
    });
}
