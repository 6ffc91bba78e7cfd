//! Writes a program in CPLEX's LP format, which other solvers read. For tests, and to compare
//! solvers.

use std::fmt::Write;

use super::program::{Program, Relation};

impl Program {
    /// Formats the program. Variables are `x0`, `x1` and so on, in the order of creation.
    pub fn to_lp(&self) -> String {
        let mut text = String::from("Maximize\n obj:");
        // Writing to a String cannot fail.
        let terms = |text: &mut String, terms: &mut dyn Iterator<Item = (usize, f64)>| {
            for (number, (at, factor)) in terms.enumerate() {
                let sign = if factor < 0.0 { '-' } else { '+' };
                // Solvers limit a line of this format to 510 characters.
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
            // Removes the line feed, because the relation belongs to the same line.
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
