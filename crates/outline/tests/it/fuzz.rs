//! Sources that went wrong, in every language: never a panic, and always the same answer.

use tenure_fuzzkit::target;
use tenure_outline::{Focus, choose, outline, rank, tokens};

use crate::fixture::{Fixture, NEVER, look};

#[test]
fn sources() {
    target!("sources").cases(150).run_with(|input, dice| {
        let fixture = Fixture::empty();
        let endings = ["rs", "py", "js", "ts", "tsx", "go", "java", "c", "cpp"];
        let path = format!("a.{}", endings[dice.below(endings.len())]);
        fixture.put(&path, input);
        let survey = fixture.look();
        // What comes from the cache is what was parsed.
        assert_eq!(look(fixture.root.path(), Some(fixture.cache.path()), "", &NEVER).unwrap().files, survey.files);
        for file in &survey.files {
            for (at, definition) in file.tags.definitions.iter().enumerate() {
                assert!(definition.first_line >= 1 && definition.first_line <= definition.last_line);
                assert!(!definition.signature.contains('\n'));
                assert!(definition.parent.is_none_or(|parent| (parent as usize) < at));
            }
        }
        let focus = Focus::of_text(&String::from_utf8_lossy(input));
        let ranked = rank(&survey, &focus);
        assert!(ranked.symbols.iter().all(|symbol| symbol.score.is_finite()));
        assert!(tokens(&outline(&survey, &ranked, 200).text) <= 200);
        choose(&survey, &ranked, &focus);
    });
}
