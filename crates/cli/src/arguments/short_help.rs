//! `longhaul cp -h`: what people need every day first, tuning last, on two screens. `--help` has
//! all.

/// What `longhaul cp -h` prints.
pub const CP: &str = "\
Copy files and trees.

Usage: longhaul cp [OPTIONS] SRC... DST
  SRC, DST: a local path, [USER@]HOST:PATH (over SSH), longhaul://HOST/PATH (a daemon),
  or - for standard input or output. SRC/ means what is in SRC.

Every day:
  -r, --recursive           copy directories with everything in them
  -n, --dry-run             say what would be copied, and deleted; change nothing
  -v, --verbose             name each file; -q, --quiet: failures only; --json: for programs
  -L, --copy-links          copy what links lead to
      --verify              read back what was written before it counts
      --manifest FILE       write the digests of all files, for b3sum --check
      --bwlimit RATE        100Mbit/s, 10MB/s; a bare number is in KiB/s
      --compress CODEC      auto, zstd[:LEVEL] or lz4
      --explain             what the model predicts, beside what came of it

What is copied (as in rsync):
      --exclude PATTERN, --include PATTERN, -f, --filter RULE, --exclude-from FILE
      --gitignore, --files-from FILE, --max-depth N, -x, --one-file-system
      --min-size, --max-size SIZE, --newer-than, --older-than WHEN

What of it is kept (as in rsync; modes, times, links and holes always are):
  -a                        -r, owners, groups, devices and the destination's own mode and time
  -H, -A, -X                hard links, access control lists, extended attributes
  -o, -g, -D, -O, --chown USER:GROUP, --chmod CHANGES, --numeric-ids, --no-perms

When it is copied (size and time decide otherwise):
  -c, --checksum            compare contents
  -u, --update              leave files that are newer at the destination
  -I, --ignore-times        copy files of the same size and time, too
      --existing, --ignore-existing, --size-only, --modify-window TIME

What is deleted (nothing otherwise):
      --delete              after the copy, what the source does not have; see first with -n
      --delete-excluded     also what filters leave out
      --max-delete N        nothing at all if it would be more
      --move                each source file, once it is durable at the destination
  -b, --backup              keep what is replaced or deleted, with a ~ at its end
      --backup-dir DIR, --suffix TEXT

Limits, accounts, and commands for each file:
      --on-commit CMD       at the destination, with the file's path as $1, once it is durable
      --filter-cmd CMD      there, or --filter-at source: the file goes through it
      --report FILE         what became of each entry, as lines of JSON
      --log-file FILE       the same for people, with the time
      --max-errors N        end after more failures than N
      --retries N           try up to N times if it fails for a reason that may pass
      --stop-after TIME, --stop-at WHEN
                            end in order; the same command resumes (exit code 8)
      --timeout TIME        how long the other end may be silent

Hosts:
      --ssh COMMAND, --install-remote, --remote-longhaul PATH, --ports FIRST-LAST
      --fingerprint KEY, --accept-new, --token-file FILE, --certificate FILE, --key FILE
      --detach (a job that outlives the terminal), --through-local

Tuning (rarely needed): --streams, --readers, --writers, --memory, --block-size, ...
Examples and all options: longhaul cp --help
";

#[cfg(test)]
mod tests {
    use super::super::Arguments;
    use super::*;

    #[test]
    fn it_is_short_and_names_only_what_there_is() {
        assert!(CP.lines().count() < 60);
        assert!(CP.lines().all(|line| line.chars().count() <= 96));
        let mut shown = Arguments::shown();
        let all = shown.find_subcommand_mut("cp").unwrap().render_long_help();
        let all = all.to_string();
        let words = CP.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '-'));
        let options = words.filter(|word| word.starts_with("--") && word.len() > 2);
        let mut count = 0;
        for option in options.filter(|option| !["--help", "--check"].contains(option)) {
            assert!(all.contains(option), "{option}");
            count += 1;
        }
        assert!(count > 50, "{count}");
    }
}
