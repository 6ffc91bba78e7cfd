//! Number of threads of an end if the system allows few: it uses fewer flows while that is
//! possible, otherwise the session ends at once with the reason.

use longhaul_proto::message::Farewell;
use longhaul_proto::options::Stack;
use longhaul_system::limits;

use super::{FlowCounts, Transfer, TransferSettings};
use crate::flows::Count;

/// Number of threads of a sending end in addition to its flows: the walker and the timer.
const OF_A_SENDER: usize = 2;

/// Number of threads of a receiving end in addition to its flows: one commits small files, one
/// compares, one is the timer.
const OF_A_RECEIVER: usize = 3;

/// Number of threads of a process in addition to its ends: signals and the progress line.
const OF_A_PROCESS: usize = 2;

/// Number of threads that start later at an end with another host: one dials, others connect.
const OF_A_DIALER: usize = 3;

/// Number of threads of a stream at one end.
const HALVES: usize = 2;

/// Ends that run in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// One that sends to another host.
    Sending,
    /// One that receives from another host.
    Receiving,
    /// Both ends.
    Both,
}

impl FlowCounts {
    /// Returns these counts, reduced if the system allows fewer threads, to no less than one of
    /// each.
    pub fn that_fit(self, settings: &TransferSettings, ends: Ends) -> FlowCounts {
        let wanted = self.threads(settings, ends);
        self.within(limits::threads(wanted), settings, ends)
    }

    fn within(mut self, most: usize, settings: &TransferSettings, ends: Ends) -> FlowCounts {
        while self.threads(settings, ends) > most {
            // Reduce the largest count, where one flow less matters least.
            let mut counts = [
                &mut self.committers,
                &mut self.writers,
                &mut self.decompressors,
                &mut self.compressors,
                &mut self.streams,
            ];
            let Some(count) = counts.iter_mut().max_by_key(|count| ***count) else {
                break;
            };
            if **count > 1 {
                **count -= 1;
                continue;
            }
            match self.readers {
                Count::Fixed(readers @ 2..) => self.readers = Count::Fixed(readers - 1),
                _ => break,
            }
        }
        self
    }

    /// Returns the number of threads needed to begin with these counts.
    fn threads(&self, settings: &TransferSettings, ends: Ends) -> usize {
        let layered = settings.stack == Stack::Layered;
        let readers = match self.readers {
            Count::Fixed(readers) => readers,
            // More readers start if there is work for them and threads are available.
            Count::UpTo(_) => 1,
        };
        let compressors = if settings.codec.compresses() {
            self.compressors
        } else {
            0
        };
        let sender =
            settings.digesters() + OF_A_SENDER + if layered { readers + compressors } else { 0 };
        let verifiers_and_writers = if layered {
            self.decompressors + self.writers
        } else {
            0
        };
        let reading = settings.content_comparers();
        let receiver = OF_A_RECEIVER + reading + self.committers + verifiers_and_writers;
        let streams = HALVES * self.streams;
        OF_A_PROCESS
            + match ends {
                Ends::Sending => sender + streams + OF_A_DIALER,
                Ends::Receiving => receiver + streams + OF_A_DIALER,
                Ends::Both => sender + receiver + 2 * streams,
            }
    }
}

impl Transfer {
    /// Ends the session because of a failure of this host.
    pub fn fail_here(&self, text: &str) {
        self.lock().lifetime.note_failure_here();
        self.end(Farewell::Broken(text.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn many() -> FlowCounts {
        FlowCounts {
            readers: Count::UpTo(8),
            compressors: 8,
            streams: 2,
            decompressors: 8,
            writers: 8,
            committers: 4,
        }
    }

    #[test]
    fn enough_threads_leave_the_numbers_unchanged() {
        let settings = TransferSettings::default();
        let wanted = many().threads(&settings, Ends::Both);
        assert_eq!(many().within(wanted, &settings, Ends::Both), many());
        assert_eq!(many().that_fit(&settings, Ends::Sending), many());
    }

    #[test]
    fn few_threads_mean_fewer_flows_and_one_of_each_at_least() {
        let settings = TransferSettings::default();
        for ends in [Ends::Both, Ends::Sending, Ends::Receiving] {
            let least = many().within(0, &settings, ends);
            let fewest = least.threads(&settings, ends);
            assert!(fewest <= 16, "{ends:?}: {fewest}");
            for most in fewest..many().threads(&settings, ends) {
                let fit = many().within(most, &settings, ends);
                assert!(fit.threads(&settings, ends) <= most, "{ends:?} {most}");
                assert!(fit.writers >= 1 && fit.streams >= 1 && fit.committers >= 1);
            }
        }
    }

    #[test]
    fn paired_streams_need_fewer_threads() {
        let settings = TransferSettings {
            stack: Stack::Paired,
            ..TransferSettings::default()
        };
        let layered = many().threads(&TransferSettings::default(), Ends::Both);
        assert!(many().threads(&settings, Ends::Both) < layered);
    }
}
