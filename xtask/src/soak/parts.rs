//! All parts of a soak. Their sizes are the required ones.

use super::{Outcome, Soak, entries, fuzzing, links, million, rekey, sparse, suites};

/// A unit that is recorded separately, and does not run again once it passed.
pub struct Step {
    /// Name that is unique within the part.
    pub name: String,
    /// Size in words. Another size is another step.
    pub size: String,
    /// Does it.
    pub run: Box<dyn Fn(&Soak) -> Outcome + Send + Sync>,
}

/// A bar.
pub struct Part {
    /// Name on the command line.
    pub name: &'static str,
    /// Description in the list, one line.
    pub about: &'static str,
    /// Its steps may run beside each other.
    pub parallel: bool,
    /// Makes the steps of the part.
    pub steps: fn(&Soak) -> Result<Vec<Step>, String>,
}

/// All parts, the short ones first.
pub const PARTS: [Part; 13] = [
    Part {
        name: "schedules",
        about: "100,000 random schedules of the state machines, with a virtual clock",
        parallel: false,
        steps: suites::schedules,
    },
    Part {
        name: "graphs",
        about: "1,000 random graphs of the model: the optimum is that of HiGHS",
        parallel: false,
        steps: suites::graphs,
    },
    Part {
        name: "crashes",
        about: "power lost at 2,000 points of each transfer of the forgetting storage",
        parallel: false,
        steps: suites::crashes,
    },
    Part {
        name: "pipelines",
        about: "30 transfers of each kind while sources, streams and flows change",
        parallel: false,
        steps: suites::pipelines,
    },
    Part {
        name: "filters",
        about: "10,000 random lists of filter rules: the same selection as rsync's",
        parallel: false,
        steps: suites::filters,
    },
    Part {
        name: "kills",
        about: "200 kills of either end, 2 GiB and 50,000 files, both checkpoints",
        parallel: false,
        steps: suites::kills,
    },
    Part {
        name: "labs",
        about: "50 labs killed at random moments: nothing is left after the next start",
        parallel: false,
        steps: suites::labs,
    },
    Part {
        name: "million",
        about: "1,000,000 files of 100 bytes through a daemon: heap and peak memory",
        parallel: false,
        steps: million::steps,
    },
    Part {
        name: "links",
        about: "1,000,000 names of 250,000 files through a daemon with -H: links and peak memory",
        parallel: false,
        steps: links::steps,
    },
    Part {
        name: "entries",
        about: "10,000,000 entries at each end, filtered and compared: peak memory",
        parallel: false,
        steps: entries::steps,
    },
    Part {
        name: "sparse",
        about: "one sparse file of 300 GiB through a daemon",
        parallel: false,
        steps: sparse::steps,
    },
    Part {
        name: "rekey",
        about: "TLS keys renewed: forced early, and after 2^24 records of one stream",
        parallel: false,
        steps: rekey::steps,
    },
    Part {
        name: "fuzz",
        about: "every fuzz target: 10^7 executions or 600 s, whichever comes first",
        parallel: true,
        steps: fuzzing::steps,
    },
];
