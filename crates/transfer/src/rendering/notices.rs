//! Formats the attributes that the destination did not preserve or refused, for people and for
//! programs.

use longhaul_proto::notice::{Notice, NoticeKind};
use serde_json::{Value, json};

use crate::console::one_line;

/// Maximum length of a line in bytes. A path may be long, and comes from the other end.
const MAXIMUM_LINE_BYTES: usize = 4096;

/// Formats a line of a summary: the notice, its count, an example with its cause, and the
/// consequence.
pub fn line(notice: &Notice) -> String {
    let (what, means) = words(notice.kind);
    let Notice {
        count,
        example,
        cause,
        ..
    } = notice;
    one_line(
        &format!("{what}: {count}, for example `{example}` ({cause}){means}"),
        MAXIMUM_LINE_BYTES,
    )
}

/// Formats the lines of a summary, each with its kind. Users and groups share one line unless the
/// user requested them by name, because they usually concern the same entries.
pub fn lines(notices: &[Notice], asked: &[NoticeKind]) -> Vec<(NoticeKind, String)> {
    let of = |kind| notices.iter().find(|notice| notice.kind == kind);
    let (user, group) = (NoticeKind::OwnerNotKept, NoticeKind::GroupNotKept);
    let together = of(user).zip(of(group)).filter(|_| !asked.contains(&user));
    let shown = notices.iter().filter_map(|notice| {
        let text = match together {
            Some((users, groups)) if notice.kind == user => owners(users, groups),
            Some(_) if notice.kind == group => return None,
            _ => line(notice),
        };
        Some((notice.kind, text))
    });
    shown.collect()
}

fn owners(users: &Notice, groups: &Notice) -> String {
    let count = if users.count == groups.count {
        users.count.to_string()
    } else {
        format!("{} and {}", users.count, groups.count)
    };
    one_line(
        &format!(
            "owners and groups not kept: {count}, for example `{}` ({})",
            users.example, users.cause
        ),
        MAXIMUM_LINE_BYTES,
    )
}

/// Formats a notice as JSON.
pub fn value(notice: &Notice) -> Value {
    json!({
        "kind": name(notice.kind), "count": notice.count, "example": notice.example,
        "cause": notice.cause, "text": line(notice),
    })
}

fn words(kind: NoticeKind) -> (&'static str, &'static str) {
    match kind {
        NoticeKind::TimeRounded => ("times kept less exactly", "; later runs allow for that"),
        NoticeKind::TimeLimited => (
            "times outside of what the file system can keep",
            "; later runs take such a file of the same size for unchanged",
        ),
        NoticeKind::TimeNotKept => ("times not kept", "; later runs copy such files again"),
        NoticeKind::TimeRefused => ("times not set", "; later runs copy such files again"),
        NoticeKind::ModeNotKept => ("permission bits not kept", ""),
        NoticeKind::ModeRefused => (
            "permission bits not set",
            "; what is new there is open to its owner alone",
        ),
        NoticeKind::SetIdDropped => (
            "set-user-ID or set-group-ID bits dropped",
            "; to keep them use --keep-set-ids, at a daemon the right \"set-id\"",
        ),
        NoticeKind::NamesNotSynced => (
            "directories not synced",
            "; names may not survive a power cut here",
        ),
        NoticeKind::NotLocked => (
            "file systems without locks",
            "; run no other copy to the same names meanwhile, or mount it with locks (Lustre: \
             -o flock)",
        ),
        NoticeKind::OwnerNotKept => (
            "owners not kept",
            "; as root, or at a daemon with the right \"owners\", they are",
        ),
        NoticeKind::GroupNotKept => (
            "groups not kept",
            "; users give files only to their own groups",
        ),
        NoticeKind::AttributeNotKept => ("extended attributes not kept", ""),
        NoticeKind::ListNotKept => ("access control lists not kept", ""),
        NoticeKind::DeviceNotMade => ("devices left out", ""),
    }
}

fn name(kind: NoticeKind) -> &'static str {
    match kind {
        NoticeKind::TimeRounded => "time_rounded",
        NoticeKind::TimeLimited => "time_limited",
        NoticeKind::TimeNotKept => "time_not_kept",
        NoticeKind::TimeRefused => "time_refused",
        NoticeKind::ModeNotKept => "mode_not_kept",
        NoticeKind::ModeRefused => "mode_refused",
        NoticeKind::SetIdDropped => "set_id_dropped",
        NoticeKind::NamesNotSynced => "names_not_synced",
        NoticeKind::NotLocked => "not_locked",
        NoticeKind::OwnerNotKept => "owner_not_kept",
        NoticeKind::GroupNotKept => "group_not_kept",
        NoticeKind::AttributeNotKept => "attribute_not_kept",
        NoticeKind::ListNotKept => "list_not_kept",
        NoticeKind::DeviceNotMade => "device_not_made",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_has_an_example_a_cause_and_its_meaning() {
        let notice = Notice::new(NoticeKind::NamesNotSynced, "a\u{1b}[2J", "Invalid argument");
        let expected = "directories not synced: 1, for example `a\u{fffd}[2J` (Invalid argument); \
                        names may not survive a power cut here";
        assert_eq!(line(&notice), expected);
        assert_eq!(value(&notice)["kind"], "names_not_synced");
    }

    #[test]
    fn users_and_groups_share_a_line_unless_an_option_names_them() {
        let notice = |kind, count| Notice {
            count,
            ..Notice::new(kind, "a/b", "only root gives files away")
        };
        let (user, group) = (NoticeKind::OwnerNotKept, NoticeKind::GroupNotKept);
        let both = [
            notice(user, 12),
            notice(group, 12),
            notice(NoticeKind::NotLocked, 1),
        ];
        let shown = lines(&both, &[]);
        let expected =
            "owners and groups not kept: 12, for example `a/b` (only root gives files away)";
        assert_eq!(shown[0], (user, expected.to_owned()));
        assert_eq!((shown.len(), shown[1].0), (2, NoticeKind::NotLocked));
        let fewer = lines(&[notice(user, 12), notice(group, 3)], &[]);
        assert!(
            fewer[0].1.contains("not kept: 12 and 3, for example"),
            "{fewer:?}"
        );
        assert_eq!(lines(&both, &[user, group]).len(), 3);
        assert_eq!(lines(&both[1..2], &[]), [(group, line(&both[1]))]);
    }
}
