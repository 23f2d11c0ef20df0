//! What was measured, beside its bound and beside the baseline: as a table and as JSON. It measures nothing itself.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use super::times::shown;

/// What a number should be.
#[derive(Debug, Clone, PartialEq)]
pub enum Bound {
    Below { limit: f64, words: String },
    Above { limit: f64, words: String },
}

impl Bound {
    pub fn below(limit: f64) -> Bound {
        Bound::Below { limit, words: format!("< {}", shown(limit)) }
    }

    /// A bound that is made up of a fixed part and what the machine itself needs in the same run.
    pub fn below_with(limit: f64, made_of: &str) -> Bound {
        Bound::Below { limit, words: format!("< {} ({made_of})", shown(limit)) }
    }

    pub fn above_with(limit: f64, made_of: &str) -> Bound {
        Bound::Above { limit, words: format!("> {} ({made_of})", shown(limit)) }
    }

    fn words(&self) -> &str {
        match self {
            Bound::Below { words, .. } | Bound::Above { words, .. } => words,
        }
    }

    fn limit(&self) -> f64 {
        match self {
            Bound::Below { limit, .. } | Bound::Above { limit, .. } => *limit,
        }
    }

    fn is_met(&self, value: f64) -> bool {
        match self {
            Bound::Below { limit, .. } => value < *limit,
            Bound::Above { limit, .. } => value > *limit,
        }
    }

    fn verdict(&self, value: f64, unit: &str) -> String {
        match self.is_met(value) {
            true => "met".into(),
            false => format!("missed by {} {unit}", shown((value - self.limit()).abs())),
        }
    }
}

/// One measured number.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its name in the baseline file.
    pub key: &'static str,
    pub what: String,
    pub value: f64,
    pub unit: &'static str,
    pub bound: Option<Bound>,
    /// Raw numbers of the same run, and how it was taken.
    pub beside: String,
}

#[derive(Debug, Default)]
pub struct Report {
    rows: Vec<Row>,
    baseline: BTreeMap<String, f64>,
}

impl Report {
    /// A baseline that is not there yet is no error; one that cannot be read is.
    pub fn new(baseline: &Path) -> Result<Report> {
        let Ok(text) = fs::read_to_string(baseline) else { return Ok(Report::default()) };
        let file: Value = serde_json::from_str(&text).with_context(|| format!("{}", baseline.display()))?;
        let numbers = file["numbers"].as_object().cloned().unwrap_or_default();
        let baseline = numbers.into_iter().filter_map(|(key, value)| Some((key, value.as_f64()?))).collect();
        Ok(Report { rows: vec![], baseline })
    }

    /// Takes a number in and tells it at once, so that a long run can be watched.
    pub fn add(&mut self, row: Row) {
        let verdict = row.bound.as_ref().map(|bound| format!("  {}: {}", bound.words(), row.verdict(bound)));
        eprintln!("  {}: {} {}{}", row.what, shown(row.value), row.unit, verdict.unwrap_or_default());
        self.rows.push(row);
    }

    fn ratio(&self, row: &Row) -> Option<f64> {
        self.baseline.get(row.key).filter(|before| **before > 0.0).map(|before| row.value / before)
    }

    /// One line a number, as Markdown that can be read as it stands.
    pub fn table(&self) -> String {
        let head = ["what", "now", "bound", "met", "baseline", "ratio", "beside"].map(str::to_owned);
        let mut lines: Vec<[String; 7]> = vec![head];
        for row in &self.rows {
            let (bound, met) = match &row.bound {
                Some(bound) => (bound.words().to_owned(), row.verdict(bound)),
                None => Default::default(),
            };
            let before = self.baseline.get(row.key).map(|before| shown(*before)).unwrap_or_default();
            let ratio = self.ratio(row).map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
            let now = format!("{} {}", shown(row.value), row.unit);
            lines.push([row.what.clone(), now, bound, met, before, ratio, row.beside.clone()]);
        }
        layout(&lines)
    }

    pub fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            json!({
                "key": row.key,
                "what": row.what,
                "value": row.value,
                "unit": row.unit,
                "bound": row.bound.as_ref().map(Bound::words),
                "limit": row.bound.as_ref().map(Bound::limit),
                "met": row.bound.as_ref().map(|bound| bound.is_met(row.value)),
                "baseline": self.baseline.get(row.key),
                "ratio": self.ratio(row),
                "beside": row.beside,
            })
        });
        json!({ "rows": rows.collect::<Vec<Value>>() })
    }

    /// What a later run compares with.
    pub fn save(&self, baseline: &Path) -> Result<()> {
        // Three digits after the point: more would only say how the machine felt.
        let rounded = |row: &Row| (row.key.to_owned(), json!((row.value * 1000.0).round() / 1000.0));
        let numbers: Map<String, Value> = self.rows.iter().map(rounded).collect();
        let text = serde_json::to_string_pretty(&json!({ "numbers": numbers }))? + "\n";
        fs::write(baseline, text).with_context(|| format!("could not write {}", baseline.display()))
    }

    pub fn missed(&self) -> usize {
        let missed = |row: &&Row| row.bound.as_ref().is_some_and(|bound| !bound.is_met(row.value));
        self.rows.iter().filter(missed).count()
    }
}

impl Row {
    fn verdict(&self, bound: &Bound) -> String {
        bound.verdict(self.value, self.unit)
    }
}

/// Columns of equal width; the last one is as long as it likes.
fn layout(lines: &[[String; 7]]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..6).map(width).collect();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        let padded = |column: usize| format!("{:width$}", line[column], width = widths[column]);
        let cells: Vec<String> = (0..6).map(padded).collect();
        text.push_str(&format!("| {} | {} |\n", cells.join(" | "), line[6]));
        if number == 0 {
            let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            text.push_str(&format!("| {} | --- |\n", rules.join(" | ")));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(value: f64, bound: Option<Bound>) -> Row {
        Row { key: "k", what: "w".into(), value, unit: "ms", bound, beside: "raw 1".into() }
    }

    #[test]
    fn a_bound_says_by_how_much_it_is_missed() {
        let below = Bound::below(4.0);
        assert_eq!(below.verdict(3.0, "ms"), "met");
        assert_eq!(below.verdict(5.5, "ms"), "missed by 1.50 ms");
        assert_eq!(Bound::above_with(10.0, "half").verdict(4.0, "a second"), "missed by 6.00 a second");
    }

    #[test]
    fn a_saved_result_is_the_next_baseline() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("baseline.json");
        let mut first = Report::new(&file).unwrap();
        first.add(row(2.0, None));
        first.save(&file).unwrap();
        let mut second = Report::new(&file).unwrap();
        second.add(row(3.0, Some(Bound::below(1.0))));
        assert_eq!(second.json()["rows"][0]["ratio"], 1.5);
        assert_eq!(second.missed(), 1);
        assert!(second.table().contains("| w    | 3.00 ms | < 1.00 | missed by 2.00 ms | 2.00     | 1.50  | raw 1 |"));
    }
}
