//! Records as tables for other programs: CSV and Parquet.
//!
//! A nested object becomes columns with dotted names, such as `path.rtt_seconds`. Of the lists, CPU
//! time becomes a sum for each side, layers become their utilisation, and doubts become their
//! kinds. Other lists stay JSON. A flag that a record omits is written as false, and times have
//! their own column type.

mod csv;
mod parquet;

use std::collections::BTreeMap;

use longhaul_units::microseconds_of;
use serde_json::Value;

use crate::record::{RecordError, RunRecord, Side};

/// Names of columns that hold times.
const TIMES: [&str; 1] = ["run.started"];

/// The values of a column, one for each row.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Booleans.
    Flags(Vec<Option<bool>>),
    /// Integers.
    Whole(Vec<Option<i64>>),
    /// Floating-point numbers.
    Numbers(Vec<Option<f64>>),
    /// Times: microseconds since 1970, and the text in the record.
    Times(Vec<Option<(i64, String)>>),
    /// Text. Values of other or mixed types are written as JSON.
    Texts(Vec<Option<String>>),
}

/// Records as named columns of equal length.
#[derive(Clone, Debug, Default)]
pub struct Table {
    columns: BTreeMap<String, BTreeMap<usize, Value>>,
    rows: usize,
}

impl Table {
    /// Adds a record as a row.
    ///
    /// # Errors
    ///
    /// If the record cannot be converted to JSON.
    pub fn add(&mut self, record: &RunRecord) -> Result<(), RecordError> {
        let value = serde_json::to_value(record).map_err(|e| RecordError::Json(e.to_string()))?;
        self.put_all("", value, record);
        for (side, name) in [
            (Side::Source, "source"),
            (Side::Destination, "destination"),
            (Side::Emulator, "emulator"),
        ] {
            if let Some(seconds) = record.cpu_seconds(&[side]) {
                self.put(format!("cpu.{name}_seconds"), seconds.into());
            }
        }
        for (name, flag) in [
            ("run.again", record.run.again),
            ("run.warm_up", record.run.warm_up),
        ] {
            self.put(name.to_owned(), flag.into());
        }
        if let Some(cost) = record.cpu_seconds_per_gigabyte() {
            self.put("cpu.seconds_per_gigabyte".to_owned(), cost.into());
        }
        self.rows += 1;
        Ok(())
    }

    fn put_all(&mut self, name: &str, value: Value, record: &RunRecord) {
        match (name, value) {
            (_, Value::Object(fields)) => {
                for (key, value) in fields {
                    let dot = if name.is_empty() { "" } else { "." };
                    self.put_all(&format!("{name}{dot}{key}"), value, record);
                }
            }
            // `add` writes a sum for each side instead.
            ("cpu", _) => {}
            ("layers", _) => {
                for layer in &record.layers {
                    let name = format!("layers.{}", layer.layer);
                    self.put(name, layer.utilisation.into());
                }
            }
            ("doubts", Value::Array(doubts)) => {
                let kinds = doubts.iter().filter_map(|doubt| doubt["kind"].as_str());
                let kinds: Vec<&str> = kinds.collect();
                self.put(name.to_owned(), kinds.join(" ").into());
            }
            (_, Value::Array(list)) => {
                let text = Value::Array(list).to_string();
                self.put(name.to_owned(), text.into());
            }
            (_, value) => self.put(name.to_owned(), value),
        }
    }

    fn put(&mut self, column: String, value: Value) {
        if !value.is_null() {
            self.columns
                .entry(column)
                .or_default()
                .insert(self.rows, value);
        }
    }

    /// Returns the number of records.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns each column with its name.
    pub fn columns(&self) -> impl Iterator<Item = (&str, Values)> {
        let columns = self.columns.iter();
        columns.map(|(name, values)| {
            let times = TIMES.contains(&name.as_str());
            let times = times.then(|| self.times(values)).flatten();
            (name.as_str(), times.unwrap_or_else(|| self.values(values)))
        })
    }

    /// Converts values to times, if each known value is a valid time.
    fn times(&self, values: &BTreeMap<usize, Value>) -> Option<Values> {
        let time = |value: &Value| {
            let text = value.as_str()?;
            Some((microseconds_of(text)?, text.to_owned()))
        };
        let is_known = |value: &&Value| value.as_str() != Some("");
        let rows = 0..self.rows;
        let known = rows.map(|row| values.get(&row).filter(is_known));
        let times: Option<Vec<_>> = known
            .map(|value| match value {
                None => Some(None),
                Some(value) => time(value).map(Some),
            })
            .collect();
        times.map(Values::Times)
    }

    /// Converts values to the narrowest type that fits all of them.
    fn values(&self, values: &BTreeMap<usize, Value>) -> Values {
        let all = |is: fn(&Value) -> bool| values.values().all(is);
        let rows = 0..self.rows;
        let of = |row: usize| values.get(&row);
        match () {
            () if all(Value::is_boolean) => {
                Values::Flags(rows.map(|row| of(row)?.as_bool()).collect())
            }
            () if all(Value::is_i64) => Values::Whole(rows.map(|row| of(row)?.as_i64()).collect()),
            () if all(Value::is_number) => {
                Values::Numbers(rows.map(|row| of(row)?.as_f64()).collect())
            }
            () => Values::Texts(rows.map(|row| Some(text(of(row)?))).collect()),
        }
    }

    /// Formats the table as comma-separated values (RFC 4180) with a header line.
    pub fn to_csv(&self) -> String {
        csv::write(self)
    }

    /// Formats the table as a Parquet file.
    pub fn to_parquet(&self) -> Vec<u8> {
        parquet::write(self)
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
