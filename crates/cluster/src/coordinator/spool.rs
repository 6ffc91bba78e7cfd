//! Tasks that wait for room in the queue: a file without a name, so that memory stays bounded.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Seek, SeekFrom, Write};

use longhaul_transfer::stop::{Exit, Stop};

use crate::private::Private;
use crate::protocol::{MAXIMUM_REPORT_BYTES, line, read};
use crate::task::Task;

/// A queue of tasks on disk.
pub struct Spool {
    written: BufWriter<File>,
    read: BufReader<File>,
    left: u64,
}

impl Spool {
    /// Creates an empty spool.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn new() -> io::Result<Spool> {
        let place = Private::new()?;
        let path = place.path().join("tasks");
        let mut options = OpenOptions::new();
        let written = options.append(true).create_new(true).open(&path)?;
        let read = File::open(&path)?;
        Ok(Spool {
            written: BufWriter::new(written),
            read: BufReader::new(read),
            left: 0,
        })
    }

    /// True if it has no tasks.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Appends a task.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn push(&mut self, task: &Task) -> io::Result<()> {
        self.written.write_all(&line(task)?)?;
        self.left += 1;
        Ok(())
    }

    /// Removes the first task.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn pop(&mut self) -> io::Result<Option<Task>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.written.flush()?;
        let task = read(&mut self.read, MAXIMUM_REPORT_BYTES)?;
        self.left -= 1;
        if self.left == 0 {
            self.written.get_ref().set_len(0)?;
            self.read.seek(SeekFrom::Start(0))?;
        }
        Ok(task)
    }
}

/// Returns the reason to end a transfer whose spool failed.
pub fn spool_failed(error: io::Error) -> Stop {
    let text = format!("cannot write the file of waiting tasks: {error}");
    Stop::new(Exit::Local, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::TaskName;

    #[test]
    fn tasks_leave_in_their_order() {
        let task = |number: u64| Task {
            name: TaskName(number.to_string()),
            files: vec![b"\xff\n"[..].into()],
            bytes: number,
            replaces: true,
            again: false,
            assembly: None,
        };
        let mut spool = Spool::new().unwrap();
        assert_eq!(spool.pop().unwrap(), None);
        for round in 0..3 {
            for number in 0..1000 {
                spool.push(&task(round * 1000 + number)).unwrap();
            }
            for number in 0..1000 {
                assert_eq!(spool.pop().unwrap(), Some(task(round * 1000 + number)));
            }
            assert!(spool.is_empty());
        }
        spool.push(&task(1)).unwrap();
        assert_eq!(spool.pop().unwrap(), Some(task(1)));
    }
}
