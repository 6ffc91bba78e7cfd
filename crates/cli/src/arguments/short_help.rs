//! Output of `longhaul cp -h`: everyday options first and tuning last, on two screens.
//! `--help` lists all options.

/// Text printed by `longhaul cp -h`.
pub const CP: &str = include_str!("short_help.txt");

#[cfg(test)]
mod tests {
    use super::super::Arguments;
    use super::*;

    #[test]
    fn the_short_help_is_short_and_names_existing_options() {
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
