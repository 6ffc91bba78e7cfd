use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_testing::await_end;

use super::words::KEPT_BYTES;
use super::*;

const LONG: Duration = Duration::from_secs(3600);

fn sh(text: &str, arguments: &[&str]) -> Command {
    let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
    command(text.as_bytes(), &arguments)
}

fn ran(text: &str, arguments: &[&str]) -> Ran {
    run(sh(text, arguments), LONG, &|| true).unwrap()
}

fn fault(ran: &Ran) -> Option<String> {
    Words::default().fault(ran)
}

#[test]
fn a_name_is_an_argument_and_no_text_of_the_shell() {
    let name = "$(echo no); `no` \"' \n x";
    let ran = ran("printf '%s' \"$1\"", &[name]);
    assert_eq!(ran.ended, Ended::Itself(ExitStatus::from_raw(0)));
    assert_eq!(ran.said, name.as_bytes());
    assert_eq!(fault(&ran), None);
}

#[test]
fn a_failed_command_is_reported_with_the_last_line_of_its_output() {
    let fault = |text| fault(&ran(text, &[])).unwrap();
    assert_eq!(fault("exit 3"), "it ended with exit code 3");
    let words = fault("echo last words >&2; echo; exit 4");
    assert_eq!(words, "it ended with exit code 4: last words");
    let words = fault("echo first; echo last words; exit 4");
    assert_eq!(
        words,
        "it ended with exit code 4: last words (cut: it wrote 17 B)"
    );
    assert_eq!(fault("kill -9 $$"), "signal 9 ended it");
    assert!(fault("no-such-command").contains("exit code 127"));
}

#[test]
fn the_end_of_the_output_is_kept() {
    let ran = ran(
        "i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done",
        &[],
    );
    assert_eq!(ran.said.len(), KEPT_BYTES);
    assert_eq!(ran.wrote, 108_890);
    assert!(ran.said.ends_with(b"\n19999\n"));
}

/// The shown messages are limited, per line and in total. Omitted text is indicated.
#[test]
fn long_output_is_shown_in_part() {
    let said = "ä".repeat(2000).into_bytes();
    let ran = Ran {
        ended: Ended::TooLong,
        wrote: said.len() as u64,
        said,
    };
    let words = Words::default();
    let told: Vec<String> = (0..1000).map(|_| words.fault(&ran).unwrap()).collect();
    assert!(told[0].contains("ää"), "{}", told[0]);
    assert!(told[0].ends_with("(cut: it wrote 4.00 kB)"), "{}", told[0]);
    assert!(told.iter().all(|fault| fault.len() < 512));
    let shown = told.iter().map(|fault| fault.matches("ä").count() * 2);
    assert!((32 << 10..=64 << 10).contains(&shown.sum::<usize>()));
    let last = told.last().unwrap();
    assert!(last.starts_with("it took too long"), "{last}");
    assert!(last.contains("what it said is cut"), "{last}");
    // A failure without a message is always reported.
    let silent = Ran {
        said: Vec::new(),
        wrote: 0,
        ..ran
    };
    assert_eq!(
        words.fault(&silent).unwrap(),
        "it took too long, and was ended"
    );
}

/// Processes that it started are killed as well; otherwise the pipe would stay open without a
/// reader.
#[test]
fn a_command_beyond_its_time_limit_is_ended_with_its_children() {
    let within = Duration::from_millis(50);
    let mut text = sh("sleep 300 & echo $!; trap '' TERM; wait; sleep 300", &[]);
    text.stdin(Stdio::null());
    let ran = run(text, within, &|| true).unwrap();
    assert_eq!(ran.ended, Ended::TooLong);
    let sleeper = String::from_utf8(ran.said.clone()).unwrap();
    await_end(sleeper.lines().next().unwrap().parse().unwrap());
    assert!(fault(&ran).unwrap().starts_with("it took too long"));
}

fn piped(text: &str, input: &[u8]) -> (Ran, Vec<u8>) {
    let mut file = tempfile::tempfile().unwrap();
    io::Write::write_all(&mut file, input).unwrap();
    io::Seek::rewind(&mut file).unwrap();
    let mut output = Vec::new();
    let mut take = |part: &[u8]| {
        output.extend_from_slice(part);
        Ok(())
    };
    let ran = pipe(sh(text, &[]), file.into(), &mut take, LONG, &|| true).unwrap();
    (ran, output)
}

#[test]
fn a_filter_may_read_a_part_and_its_whole_output_is_used() {
    let input = vec![b'x'; 3 << 20];
    let (ran, output) = piped("echo words >&2; tr x y", &input);
    assert_eq!(fault(&ran), None);
    assert_eq!(output, vec![b'y'; 3 << 20]);
    assert_eq!(ran.said, b"words\n");
    let (ran, output) = piped("head -c 3", &input);
    assert_eq!((fault(&ran), &output[..]), (None, &b"xxx"[..]));
    let (ran, output) = piped("true", b"");
    assert_eq!((fault(&ran), &output[..]), (None, &b""[..]));
    // The shell ends before its child process.
    let (ran, output) = piped("{ sleep 0.3; echo late; } & exit 0", b"");
    assert_eq!((fault(&ran), &output[..]), (None, &b"late\n"[..]));
    let (ran, _) = piped("head -c 3; echo no >&2; exit 7", &input);
    assert_eq!(fault(&ran).unwrap(), "it ended with exit code 7: no");
}

#[test]
fn a_filter_is_ended_if_its_output_cannot_be_written() {
    let file = std::fs::File::open("/dev/null").unwrap();
    let mut take = |_: &[u8]| Err(io::ErrorKind::StorageFull.into());
    let text = sh("yes", &[]);
    let error = pipe(text, file.into(), &mut take, LONG, &|| true).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}

#[test]
fn background_processes_of_a_command_end_with_it() {
    let ran = ran("sleep 300 & echo $!", &[]);
    let sleeper = String::from_utf8(ran.said).unwrap();
    await_end(sleeper.trim().parse().unwrap());
}

/// Commands: one that ends on SIGTERM, one that ignores it, one that would start later.
#[test]
fn no_command_outlives_the_end_of_all_groups() {
    let groups: &'static Groups = Box::leak(Box::new(Groups::new()));
    let (sender, receiver) = std::sync::mpsc::channel();
    let place = tempfile::tempdir().unwrap();
    let threads: Vec<_> = ["trap 'exit 0' TERM", "trap '' TERM"]
        .into_iter()
        .enumerate()
        .map(|(number, trap)| {
            let (sender, begun) = (sender.clone(), place.path().join(number.to_string()));
            std::thread::spawn(move || {
                let stays = longhaul_testing::until("false");
                let text = format!("{trap}; : > '{}'; {stays}", begun.display());
                let ran = run_in(groups, sh(&text, &[]), LONG, &|| true);
                sender.send(ran.unwrap().ended).unwrap();
            })
        })
        .collect();
    longhaul_testing::await_that(|| std::fs::read_dir(place.path()).unwrap().count() == 2);
    groups.end();
    // The exit status of a command that was ended does not count as success.
    assert_eq!(receiver.recv().unwrap(), Ended::Unwanted);
    assert_eq!(receiver.recv().unwrap(), Ended::Unwanted);
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert!(run_in(groups, sh("true", &[]), LONG, &|| true).is_err());
    // Without commands there is no waiting.
    groups.end();
}

#[test]
fn a_command_that_is_no_longer_needed_is_ended() {
    let asked = AtomicBool::new(false);
    let wanted = || !asked.swap(true, Ordering::Relaxed);
    let ran = run(sh("sleep 300", &[]), LONG, &wanted).unwrap();
    assert_eq!(ran.ended, Ended::Unwanted);
}
