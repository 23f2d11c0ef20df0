//! What a script says of a change when nothing was written down for that.

use super::script::{Action, Pace};

pub(super) fn approval() -> [Action; 1] {
    let text = r#"{"verdict": "approve", "reason": "The script has nothing against it."}"#.to_owned();
    [Action::Text { text, pace: Pace::default() }]
}
