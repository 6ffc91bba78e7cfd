//! A program as text in CPLEX's LP format, which other solvers read: for tests, and to compare
//! solvers.

use std::fmt::Write;

use super::program::{Program, Relation};

impl Program {
    /// As text. Variables are `x0`, `x1` and so on, in the order in which they were made.
    pub fn to_lp(&self) -> String {
        let mut text = String::from("Maximize\n obj:");
        // Writing to a string does not fail.
        let terms = |text: &mut String, terms: &mut dyn Iterator<Item = (usize, f64)>| {
            for (number, (at, factor)) in terms.enumerate() {
                let sign = if factor < 0.0 { '-' } else { '+' };
                // Lines of this format are short: solvers stop at 510 characters.
                let line = if number % 8 == 7 { "\n" } else { "" };
                let _ = write!(text, "{line} {sign} {:e} x{at}", factor.abs());
            }
            text.push('\n');
        };
        terms(&mut text, &mut self.objective_terms());
        text.push_str("Subject To\n");
        for (number, (row, relation, right)) in self.row_terms().enumerate() {
            let _ = write!(text, " c{number}:");
            terms(&mut text, &mut row.into_iter());
            let relation = match relation {
                Relation::Le => "<=",
                Relation::Eq => "=",
                Relation::Ge => ">=",
            };
            // On the line before its end.
            text.pop();
            let _ = writeln!(text, " {relation} {right:e}");
        }
        text.push_str("Bounds\n");
        let mut whole = String::new();
        for (at, (most, is_whole)) in self.column_bounds().enumerate() {
            let _ = writeln!(text, " 0 <= x{at} <= {most:e}");
            if is_whole {
                let _ = writeln!(whole, " x{at}");
            }
        }
        if !whole.is_empty() {
            text.push_str("General\n");
            text.push_str(&whole);
        }
        text.push_str("End\n");
        text
    }
}
